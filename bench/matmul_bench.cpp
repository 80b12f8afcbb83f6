// Large-batch products by weight type: ggml's way (repacked where it repacks) against unpacking to
// float, in GFLOP/s of the same run.
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "kernels/matmul.h"

namespace ctxzip {
namespace {

constexpr int kThreads = 2;
constexpr int kRounds = 5;
constexpr int64_t kTokens = 512;
constexpr int kDecodeRepeats = 20;  // of a product with one token, which is short

double median_seconds(const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

ggml_backend_buffer_type_t repack_type() {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  const auto get =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  auto* types = get != nullptr ? get(device) : nullptr;
  return types != nullptr ? *types : nullptr;
}

// ggml's product with the weights in a buffer of `type`; 0 where it cannot.
double ggml_seconds(ggml_type weight_type, int64_t n_in, int64_t n_out,
                    const std::vector<std::byte>& weights, std::span<const float> x,
                    ggml_backend_buffer_type_t type) {
  const int64_t n_tokens = static_cast<int64_t>(x.size()) / n_in;
  const int n_repeats = n_tokens == 1 ? kDecodeRepeats : 1;
  const ggml_backend_ptr backend(ggml_backend_cpu_init());
  ggml_backend_cpu_set_n_threads(backend.get(), kThreads);
  const ggml_context_ptr leaves(
      ggml_init({.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  ggml_tensor* w = ggml_new_tensor_2d(leaves.get(), weight_type, n_in, n_out);
  const ggml_backend_buffer_ptr buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(leaves.get(), type));
  if (!buffer) return 0;
  const ggml_context_ptr context(
      ggml_init({.mem_size = 8 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), 8, false);
  ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n_in, n_tokens);
  ggml_set_input(input);
  ggml_tensor* product = ggml_mul_mat(context.get(), w, input);
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (!ggml_backend_dev_supports_op(device, product)) return 0;
  ggml_backend_tensor_set(w, weights.data(), 0, weights.size());
  ggml_build_forward_expand(graph, product);
  const ggml_gallocr_ptr allocator(
      ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend.get())));
  ggml_gallocr_alloc_graph(allocator.get(), graph);
  ggml_backend_tensor_set(input, x.data(), 0, x.size_bytes());
  const double seconds = median_seconds([&] {
    for (int repeat = 0; repeat < n_repeats; ++repeat)
      ggml_backend_graph_compute(backend.get(), graph);
  });
  return seconds / n_repeats;
}

double unpacked_seconds(ggml_type type, int64_t n_in, int64_t n_out,
                        const std::vector<std::byte>& weights, const std::vector<float>& x) {
  const WeightMatrix matrix = {.data = weights.data(),
                               .row_bytes = ggml_row_size(type, n_in),
                               .n_in = n_in,
                               .n_out = n_out,
                               .block_values = ggml_blck_size(type),
                               .block_bytes = ggml_type_size(type),
                               .unpack = ggml_get_type_traits(type)->to_float};
  std::vector<float> y(static_cast<size_t>(kTokens * n_out));
  return median_seconds([&] {
    const auto part = [&](int thread) {
      for (int64_t first = thread * kMatmulRows; first < n_out; first += kThreads * kMatmulRows)
        tuned_matmul_kernels().multiply(matrix, first, x.data(), n_in, kTokens, y.data(), n_out);
    };
    std::thread other(part, 1);
    part(0);
    other.join();
  });
}

void run(int64_t n_in, int64_t n_out) {
  std::printf("%lld x %lld, %lld tokens, %d threads, medians of %d, GFLOP/s\n\n",
              static_cast<long long>(n_in), static_cast<long long>(n_out),
              static_cast<long long>(kTokens), kThreads, kRounds);
  std::printf("%-8s %10s %10s %10s %14s\n", "type", "mapped", "repacked", "unpacked",
              "x best ggml");
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n_in * n_out));
  for (float& value : values) value = normal(random);
  std::vector<float> x(static_cast<size_t>(kTokens * n_in));
  for (float& value : x) value = normal(random);
  for (const ggml_type type :
       {GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q8_0,
        GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
        GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS}) {
    if (n_in % ggml_blck_size(type) != 0) continue;
    std::vector<std::byte> weights(ggml_row_size(type, n_in) * static_cast<size_t>(n_out));
    ggml_quantize_chunk(type, values.data(), weights.data(), 0, n_out, n_in, nullptr);
    const double mapped =
        ggml_seconds(type, n_in, n_out, weights, x, ggml_backend_cpu_buffer_type());
    const auto extra = repack_type();
    const double repacked =
        extra == nullptr ? 0 : ggml_seconds(type, n_in, n_out, weights, x, extra);
    const std::span<const float> one(x.data(), static_cast<size_t>(n_in));
    const double mapped_one =
        ggml_seconds(type, n_in, n_out, weights, one, ggml_backend_cpu_buffer_type());
    const double repacked_one =
        extra == nullptr ? 0 : ggml_seconds(type, n_in, n_out, weights, one, extra);
    const double ours = unpacked_seconds(type, n_in, n_out, weights, x);
    const double flops = 2e-9 * static_cast<double>(n_in * n_out * kTokens);
    const double best = repacked > 0 ? std::min(mapped, repacked) : mapped;
    const auto shown = [](double gflops, bool there) {
      return there ? std::to_string(gflops).substr(0, 6) : std::string("-");
    };
    const double flops_one = flops / kTokens;
    std::printf("%-8s %10.1f %10s %10.1f %14.2f %14.1f %10s\n", ggml_type_name(type),
                flops / mapped, shown(flops / repacked, repacked > 0).c_str(), flops / ours,
                best / ours, flops_one / mapped_one,
                shown(flops_one / repacked_one, repacked_one > 0).c_str());
  }
  std::printf("\n");
}

}  // namespace
}  // namespace ctxzip

int main() {
  ctxzip::run(576, 1536);
  ctxzip::run(1536, 8960);
}
