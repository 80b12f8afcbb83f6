// Attention alone, ours against ggml's flash attention as llama.cpp calls it (f16 rows interleaved
// by head, f16 mask), same threads, taking turns; outputs are compared. Prefill: a batch of 512
// tokens over the rows before it and, causally, its own. Decode of latent attention: one token of
// 32 heads over rows of 512 + 64, with the kernel of the model's graph and that of recall.
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "attention/tile_batch.h"
#include "core/stopwatch.h"
#include "kernels/attention.h"
#include "kernels/half.h"
#include "kernels/mla.h"
#include "median.h"

namespace ctxzip::bench {
namespace {

constexpr int kThreads = 2;
constexpr int kRounds = 5;
constexpr int64_t kBatch = 512;
constexpr float kTolerance = 2e-2f;  // ggml rounds queries to f16 and may sum in f16

struct ModelShape {
  const char* model;
  int64_t n_head;
  int64_t n_kv_head;
  int64_t head_dim;

  int64_t group() const { return n_head / n_kv_head; }
  AttentionShape attention() const {
    return {.row_type = RowType::kF16,
            .head_dim = head_dim,
            .group = group(),
            .scale = 1 / std::sqrt(static_cast<float>(head_dim))};
  }
};
constexpr ModelShape kModels[] = {{"SmolLM2-135M", 9, 3, 64},
                                  {"Qwen2.5-Coder-0.5B", 14, 2, 64},
                                  {"Qwen2.5-Coder-1.5B", 12, 2, 128},
                                  {"Gemma 3 270M", 4, 1, 256}};

// Random queries (kBatch, n_head, head_dim), keys and values (n_kv_head, n_rows, head_dim).
struct Inputs {
  std::vector<float> q;
  std::vector<uint16_t> k;
  std::vector<uint16_t> v;

  Inputs(const ModelShape& shape, int64_t n_rows) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    q.resize(static_cast<size_t>(kBatch * shape.n_head * shape.head_dim));
    for (float& value : q) value = normal(random);
    for (std::vector<uint16_t>* rows : {&k, &v}) {
      rows->resize(static_cast<size_t>(shape.n_kv_head * n_rows * shape.head_dim));
      for (uint16_t& value : *rows) value = float_to_half(normal(random));
    }
  }
};

class GgmlAttention {
 public:
  GgmlAttention(const ModelShape& shape, const Inputs& inputs, int64_t n_rows)
      : backend_(ggml_backend_cpu_init()),
        context_(ggml_init({.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                            .mem_buffer = nullptr,
                            .no_alloc = true})) {
    ggml_context* c = context_.get();
    ggml_backend_cpu_set_n_threads(backend_.get(), kThreads);
    ggml_tensor* q = ggml_new_tensor_3d(c, GGML_TYPE_F32, shape.head_dim, shape.n_head, kBatch);
    ggml_tensor* k = ggml_new_tensor_3d(c, GGML_TYPE_F16, shape.head_dim, shape.n_kv_head, n_rows);
    ggml_tensor* v = ggml_dup_tensor(c, k);
    ggml_tensor* mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, n_rows, kBatch);
    const auto by_head = [&](ggml_tensor* tensor) { return ggml_permute(c, tensor, 0, 2, 1, 3); };
    out_ = ggml_flash_attn_ext(c, by_head(q), by_head(k), by_head(v), mask, shape.attention().scale,
                               0, 0);
    graph_ = ggml_new_graph(c);
    ggml_build_forward_expand(graph_, out_);
    buffer_.reset(ggml_backend_alloc_ctx_tensors(c, backend_.get()));
    if (!buffer_) std::exit(1);
    std::memcpy(q->data, inputs.q.data(), ggml_nbytes(q));
    fill_rows(shape, inputs.k, n_rows, static_cast<uint16_t*>(k->data));
    fill_rows(shape, inputs.v, n_rows, static_cast<uint16_t*>(v->data));
    auto* visible = static_cast<uint16_t*>(mask->data);
    for (int64_t token = 0; token < kBatch; ++token) {
      for (int64_t row = 0; row < n_rows; ++row) {
        *visible++ = float_to_half(row <= n_rows - kBatch + token ? 0 : -INFINITY);
      }
    }
  }

  void run() { ggml_backend_graph_compute(backend_.get(), graph_); }
  // (kBatch, n_head, head_dim)
  const float* out() const { return static_cast<const float*>(out_->data); }

 private:
  static void fill_rows(const ModelShape& shape, const std::vector<uint16_t>& rows, int64_t n_rows,
                        uint16_t* interleaved) {
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int64_t head = 0; head < shape.n_kv_head; ++head) {
        std::copy_n(rows.data() + (head * n_rows + row) * shape.head_dim, shape.head_dim,
                    interleaved + (row * shape.n_kv_head + head) * shape.head_dim);
      }
    }
  }

  ggml_backend_ptr backend_;
  ggml_context_ptr context_;
  ggml_backend_buffer_ptr buffer_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* out_ = nullptr;
};

// Work items are (KV head, tile of tokens), as in the engine.
void ours(const ModelShape& shape, const Inputs& inputs, int64_t n_rows, std::vector<float>& out) {
  const AttentionKernels& kernels = tuned_attention_kernels();
  const AttentionShape attention = shape.attention();
  const int64_t stride = shape.n_head * shape.head_dim;
  const int64_t per_tile = tile_tokens(shape.group());
  const int64_t n_tiles = (kBatch + per_tile - 1) / per_tile;
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    const size_t bytes = (kernels.scratch_bytes(attention) + 63) / 64 * 64;
    const std::unique_ptr<std::byte, decltype(&std::free)> scratch(
        static_cast<std::byte*>(std::aligned_alloc(64, bytes)), &std::free);
    for (int64_t item = next++; item < shape.n_kv_head * n_tiles; item = next++) {
      const int64_t head = item % shape.n_kv_head;
      const int64_t first = (n_tiles - 1 - item / shape.n_kv_head) * per_tile;
      const int64_t at = first * stride + head * shape.group() * shape.head_dim;
      const uint16_t* k = inputs.k.data() + head * n_rows * shape.head_dim;
      const uint16_t* v = inputs.v.data() + head * n_rows * shape.head_dim;
      const int64_t n_past = n_rows - kBatch;
      const Segment segments[] = {
          {.k = k, .v = v, .n_rows = n_past},
          {.k = k + n_past * shape.head_dim, .v = v + n_past * shape.head_dim, .n_rows = kBatch}};
      kernels.attend_tile(attention,
                          {inputs.q.data() + at, std::min(per_tile, kBatch - first), stride},
                          {.segments = segments, .causal = 1, .causal_rows = first + 1},
                          out.data() + at, stride, nullptr, scratch.get());
    }
  };
  std::thread other(work);
  work();
  other.join();
}

// One token over latent rows, whose first part is the value.
class GgmlLatentDecode {
 public:
  GgmlLatentDecode(const MlaShape& shape, const std::vector<float>& q,
                   const std::vector<uint16_t>& rows)
      : backend_(ggml_backend_cpu_init()),
        context_(ggml_init({.mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(),
                            .mem_buffer = nullptr,
                            .no_alloc = true})) {
    ggml_context* c = context_.get();
    ggml_backend_cpu_set_n_threads(backend_.get(), kThreads);
    const int64_t n_rows = static_cast<int64_t>(rows.size()) / shape.row_dim();
    ggml_tensor* queries = ggml_new_tensor_3d(c, GGML_TYPE_F32, shape.row_dim(), 1, shape.n_head);
    ggml_tensor* k = ggml_new_tensor_3d(c, GGML_TYPE_F16, shape.row_dim(), n_rows, 1);
    ggml_tensor* mask = ggml_new_tensor_2d(c, GGML_TYPE_F16, n_rows, 1);
    ggml_tensor* v = ggml_view_3d(c, k, shape.latent, n_rows, 1, k->nb[1], k->nb[2], 0);
    out_ = ggml_flash_attn_ext(c, queries, k, v, mask, shape.scale, 0, 0);
    graph_ = ggml_new_graph(c);
    ggml_build_forward_expand(graph_, out_);
    buffer_.reset(ggml_backend_alloc_ctx_tensors(c, backend_.get()));
    if (!buffer_) std::exit(1);
    std::memcpy(queries->data, q.data(), ggml_nbytes(queries));
    std::memcpy(k->data, rows.data(), ggml_nbytes(k));
    std::memset(mask->data, 0, ggml_nbytes(mask));
  }

  void run() { ggml_backend_graph_compute(backend_.get(), graph_); }
  // (n_head, latent)
  const float* out() const { return static_cast<const float*>(out_->data); }

 private:
  ggml_backend_ptr backend_;
  ggml_context_ptr context_;
  ggml_backend_buffer_ptr buffer_;
  ggml_cgraph* graph_ = nullptr;
  ggml_tensor* out_ = nullptr;
};

// Calls work(item) for all items, on two threads.
void on_items(int64_t n_items, const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  const auto take = [&] {
    for (int64_t item = next++; item < n_items; item = next++) work(item);
  };
  std::thread other(take);
  take();
  other.join();
}

// As the model's graph decodes without a policy.
void graph_decode(const MlaShape& shape, const std::vector<float>& q,
                  const std::vector<uint16_t>& rows, std::vector<float>& partials,
                  std::vector<float>& out) {
  const AttentionKernels& kernels = tuned_attention_kernels();
  const AttentionShape attention = {.row_type = RowType::kF16,
                                    .head_dim = shape.row_dim(),
                                    .group = shape.n_head,
                                    .scale = shape.scale,
                                    .value_dim = shape.latent};
  const int64_t n_rows = static_cast<int64_t>(rows.size()) / shape.row_dim();
  const int64_t n_blocks = (n_rows + kRowsPerBlock - 1) / kRowsPerBlock;
  const int64_t stride = shape.n_head * (shape.latent + 2);
  partials.resize(static_cast<size_t>(n_blocks * stride));
  on_items(n_blocks, [&](int64_t block) {
    kernels.attend_block(attention, q.data(), {rows.data(), rows.data(), n_rows},
                         block * kRowsPerBlock, std::min(n_rows, (block + 1) * kRowsPerBlock),
                         partials.data() + block * stride);
  });
  AttentionShape one_head = attention;
  one_head.group = 1;
  on_items(shape.n_head, [&](int64_t head) {
    kernels.merge_blocks(one_head, partials.data() + head * (shape.latent + 2), stride, n_blocks,
                         out.data() + head * shape.latent);
  });
}

// As a step of recall attends to rows.
void recall_decode(const MlaShape& shape, const std::vector<float>& q,
                   const std::vector<uint16_t>& rows, std::vector<float>& partials,
                   std::vector<float>& out) {
  const MlaKernels& kernels = tuned_mla_kernels();
  const int64_t n_rows = static_cast<int64_t>(rows.size()) / shape.row_dim();
  const int64_t n_blocks = (n_rows + kRowsPerBlock - 1) / kRowsPerBlock;
  const std::unique_ptr<float, decltype(&std::free)> packed(
      static_cast<float*>(std::aligned_alloc(
          64, sizeof(float) * static_cast<size_t>(packed_floats(shape.n_head, shape.row_dim())))),
      &std::free);
  kernels.pack(q.data(), shape.n_head, shape.row_dim(), shape.row_dim(), shape.scale, packed.get());
  partials.resize(static_cast<size_t>(n_blocks * partial_floats(shape)));
  std::vector<const float*> all;
  for (int64_t block = 0; block < n_blocks; ++block) {
    all.push_back(partials.data() + block * partial_floats(shape));
  }
  on_items(n_blocks, [&](int64_t block) {
    kernels.attend(shape, {packed.get(), shape.n_head, shape.row_dim()},
                   {rows.data(), RowType::kF16, shape.row_dim()}, block * kRowsPerBlock,
                   std::min(n_rows, (block + 1) * kRowsPerBlock),
                   partials.data() + block * partial_floats(shape));
  });
  constexpr int64_t kDims = 64;
  on_items(shape.latent / kDims, [&](int64_t part) {
    kernels.merge(shape, all.data(), n_blocks, part * kDims, kDims, out.data());
  });
}

double seconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return seconds_since(start);
}

void require_equal(const char* what, const std::vector<float>& ours, const float* theirs) {
  for (size_t at = 0; at < ours.size(); ++at) {
    const float difference = std::abs(ours[at] - theirs[at]);
    if (difference <= kTolerance) continue;
    std::fprintf(stderr, "%s: outputs differ by %g\n", what, static_cast<double>(difference));
    std::exit(1);
  }
}

void compare_latent_decode(int64_t n_rows) {
  const MlaShape shape = {
      .latent = 512, .branch = 64, .n_head = 32, .scale = 1 / std::sqrt(576.0f)};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> q(static_cast<size_t>(shape.n_head * shape.row_dim()));
  for (float& value : q) value = normal(random);
  std::vector<uint16_t> rows(static_cast<size_t>(n_rows * shape.row_dim()));
  for (uint16_t& value : rows) value = float_to_half(normal(random));
  GgmlLatentDecode theirs(shape, q, rows);
  std::vector<float> out(static_cast<size_t>(shape.n_head * shape.latent));
  std::vector<float> partials;
  std::vector<double> theirs_s;
  std::vector<double> graph_s;
  std::vector<double> recall_s;
  std::vector<double> graph_ratio;
  std::vector<double> recall_ratio;
  for (int round = 0; round < 3 * kRounds; ++round) {
    theirs_s.push_back(seconds([&] { theirs.run(); }));
    graph_s.push_back(seconds([&] { graph_decode(shape, q, rows, partials, out); }));
    require_equal("graph's latent decode", out, theirs.out());
    recall_s.push_back(seconds([&] { recall_decode(shape, q, rows, partials, out); }));
    require_equal("recall's latent decode", out, theirs.out());
    graph_ratio.push_back(theirs_s.back() / graph_s.back());
    recall_ratio.push_back(theirs_s.back() / recall_s.back());
  }
  const double gflop =
      2e-9 * static_cast<double>(n_rows * shape.n_head * (shape.row_dim() + shape.latent));
  std::printf(
      "latent decode %6lld  ggml %8.2f ms %6.1f GFLOP/s  graph %8.2f ms %6.1f %5.2fx  recall"
      " %8.2f ms %6.1f %5.2fx\n",
      static_cast<long long>(n_rows), 1e3 * median(theirs_s), gflop / median(theirs_s),
      1e3 * median(graph_s), gflop / median(graph_s), median(graph_ratio), 1e3 * median(recall_s),
      gflop / median(recall_s), median(recall_ratio));
  std::fflush(stdout);
}

void compare(const ModelShape& shape, int64_t n_rows) {
  const Inputs inputs(shape, n_rows);
  GgmlAttention theirs(shape, inputs, n_rows);
  std::vector<float> out(inputs.q.size());
  std::vector<double> ours_s;
  std::vector<double> theirs_s;
  std::vector<double> ratios;
  for (int round = 0; round < kRounds; ++round) {
    theirs_s.push_back(seconds([&] { theirs.run(); }));
    ours_s.push_back(seconds([&] { ours(shape, inputs, n_rows, out); }));
    ratios.push_back(theirs_s.back() / ours_s.back());
  }
  require_equal(shape.model, out, theirs.out());
  const double rows = static_cast<double>(n_rows - kBatch) + 0.5 * (kBatch + 1);
  const double gflop = 4e-9 * static_cast<double>(kBatch * shape.n_head * shape.head_dim) * rows;
  std::printf("%-20s %6lld  %8.1f ms %6.1f GFLOP/s  %8.1f ms %6.1f GFLOP/s  %5.2fx\n", shape.model,
              static_cast<long long>(n_rows), 1e3 * median(theirs_s), gflop / median(theirs_s),
              1e3 * median(ours_s), gflop / median(ours_s), median(ratios));
  std::fflush(stdout);
}

}  // namespace
}  // namespace ctxzip::bench

int main(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "";
  if (only != "decode") {
    std::printf("512 tokens over N rows, one layer, %d threads, medians of %d: ggml, ctxzip\n",
                ctxzip::bench::kThreads, ctxzip::bench::kRounds);
    for (const auto& model : ctxzip::bench::kModels) {
      for (const int64_t n_rows : {2048, 8192, 32768}) ctxzip::bench::compare(model, n_rows);
    }
  }
  if (only != "prefill") {
    std::printf("one token of 32 heads over N latent rows of 512 + 64, %d threads\n",
                ctxzip::bench::kThreads);
    for (const int64_t n_rows : {8192, 32768, 131072}) ctxzip::bench::compare_latent_decode(n_rows);
  }
}
