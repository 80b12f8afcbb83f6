// Speed of the tuned attention kernels as a share of this machine's limits.
//
// Each line reports bytes of K and V rows read and floating-point operations of the two products
// per second. `share` is the time that the slower of the two limits would take over the time taken.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/half.h"
#include "machine_probe.h"

namespace ctxzip::bench {
namespace {

constexpr uint32_t kSeed = 20250719;
// More rows than any cache holds, so that decode reads memory as it does in a model.
constexpr int64_t kWorkingSetBytes = int64_t{160} << 20;
constexpr int64_t kTileTokens = 32;
constexpr double kTolerance = 2e-4;

MachineLimits limits;

struct Case {
  int64_t head_dim;
  int64_t group;
  int64_t n_rows;
};

// K and V of several heads with random contents, f16.
class Heads {
 public:
  Heads(const Case& shape, int64_t bytes) : shape_(shape) {
    const int64_t head_floats = shape.head_dim * shape.n_rows;
    n_heads_ = std::max<int64_t>(2, bytes / (4 * head_floats));
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal;
    std::vector<float> values(1 << 16);
    for (float& value : values) value = normal(random);
    rows_.resize(static_cast<size_t>(2 * n_heads_ * head_floats));
    for (size_t at = 0; at < rows_.size(); at += values.size()) {
      const size_t n = std::min(values.size(), rows_.size() - at);
      to_f16(values.data(), rows_.data() + at, static_cast<int64_t>(n));
    }
  }

  int64_t size() const { return n_heads_; }
  Segment segment(int64_t head) const {
    const int64_t head_floats = shape_.head_dim * shape_.n_rows;
    const uint16_t* k = rows_.data() + 2 * head * head_floats;
    return {.k = k, .v = k + head_floats, .n_rows = shape_.n_rows};
  }

 private:
  Case shape_;
  int64_t n_heads_ = 0;
  std::vector<uint16_t> rows_;
};

AttentionShape shape_of(const Case& c) {
  return {.row_type = RowType::kF16,
          .head_dim = c.head_dim,
          .group = c.group,
          .scale = 1 / std::sqrt(static_cast<float>(c.head_dim))};
}

std::vector<float> random_queries(const Case& c, int64_t n_tokens) {
  std::mt19937 random(kSeed + 1);
  std::normal_distribution<float> normal;
  std::vector<float> q(static_cast<size_t>(n_tokens * c.group * c.head_dim));
  for (float& value : q) value = normal(random);
  return q;
}

struct AlignedScratch {
  explicit AlignedScratch(size_t bytes)
      : data(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64 + 64)),
             &std::free) {}
  std::unique_ptr<std::byte, decltype(&std::free)> data;
};

void decode(const AttentionKernels& kernels, const AttentionShape& shape, const float* q,
            const Segment& segment, std::vector<float>& partials, float* out) {
  const int64_t n_blocks = (segment.n_rows + kRowsPerBlock - 1) / kRowsPerBlock;
  const int64_t block_floats = shape.group * (shape.head_dim + 2);
  partials.resize(static_cast<size_t>(n_blocks * block_floats));
  for (int64_t block = 0; block < n_blocks; ++block) {
    kernels.attend_block(shape, q, segment, block * kRowsPerBlock,
                         std::min(segment.n_rows, (block + 1) * kRowsPerBlock),
                         partials.data() + block * block_floats);
  }
  kernels.merge_blocks(shape, partials.data(), n_blocks, out);
}

void check(const std::vector<float>& tuned, const std::vector<float>& ref, const char* what) {
  for (size_t at = 0; at < ref.size(); ++at) {
    if (std::abs(tuned[at] - ref[at]) <= kTolerance * (1 + std::abs(ref[at]))) continue;
    std::fprintf(stderr, "%s: element %zu is %g, ref has %g\n", what, at,
                 static_cast<double>(tuned[at]), static_cast<double>(ref[at]));
    std::exit(1);
  }
}

void report(benchmark::State& state, double bytes, double flops) {
  const int threads = state.threads();
  const double limit = std::max(bytes / limits.read_bytes_per_s(threads),
                                flops / (limits.fma_flops_per_s * threads));
  const double n = static_cast<double>(state.iterations());
  const auto rate = benchmark::Counter::kIsRate;
  state.counters["GB/s"] = benchmark::Counter(n * bytes / 1e9, rate);
  state.counters["GFLOP/s"] = benchmark::Counter(n * flops / 1e9, rate);
  state.counters["share"] = benchmark::Counter(n * limit, rate);
}

void bench_decode(benchmark::State& state, const Case& c, const Heads& heads) {
  const AttentionShape shape = shape_of(c);
  const std::vector<float> q = random_queries(c, 1);
  std::vector<float> out(q.size());
  std::vector<float> partials;
  int64_t head = state.thread_index();
  for (auto _ : state) {
    decode(tuned_attention_kernels(), shape, q.data(), heads.segment(head), partials, out.data());
    head = (head + state.threads()) % heads.size();
    benchmark::DoNotOptimize(out.data());
  }
  report(state, static_cast<double>(4 * c.head_dim * c.n_rows),
         static_cast<double>(4 * c.group * c.head_dim * c.n_rows));
}

void check_decode(const Case& c, const Heads& heads) {
  const std::vector<float> q = random_queries(c, 1);
  std::vector<float> tuned(q.size());
  std::vector<float> ref(q.size());
  std::vector<float> partials;
  decode(tuned_attention_kernels(), shape_of(c), q.data(), heads.segment(0), partials,
         tuned.data());
  decode(ref_attention_kernels(), shape_of(c), q.data(), heads.segment(0), partials, ref.data());
  check(tuned, ref, "decode");
}

// A context of n_rows and, causally, the tile's own tokens.
void tile(const AttentionKernels& kernels, const Case& c, const std::vector<float>& q,
          int64_t n_tokens, const Segment& context, const Segment& own, std::vector<float>& out,
          std::vector<float>& lse, std::byte* scratch) {
  const Segment segments[] = {context, own};
  const int64_t stride = c.group * c.head_dim;
  kernels.attend_tile(shape_of(c), {q.data(), n_tokens, stride}, {segments, 1, 1, 1}, out.data(),
                      stride, lse.data(), scratch);
}

void bench_tile(benchmark::State& state, const Case& c, const Heads& heads) {
  const AttentionKernels& kernels = tuned_attention_kernels();
  const std::vector<float> q = random_queries(c, kTileTokens);
  std::vector<float> out(q.size());
  std::vector<float> lse(static_cast<size_t>(kTileTokens * c.group));
  const AlignedScratch scratch(kernels.scratch_bytes(shape_of(c)));
  Segment own = heads.segment(1);
  own.n_rows = kTileTokens;
  for (auto _ : state) {
    tile(kernels, c, q, kTileTokens, heads.segment(0), own, out, lse, scratch.data.get());
    benchmark::DoNotOptimize(out.data());
  }
  const double rows = static_cast<double>(c.n_rows) + 0.5 * static_cast<double>(kTileTokens + 1);
  report(state, 4 * static_cast<double>(c.head_dim) * rows,
         4 * static_cast<double>(kTileTokens * c.group * c.head_dim) * rows);
}

void check_tile(const Case& c, const Heads& heads) {
  constexpr int64_t kTokens = 3;
  const std::vector<float> q = random_queries(c, kTokens);
  std::vector<float> tuned(q.size());
  std::vector<float> ref(q.size());
  std::vector<float> lse(static_cast<size_t>(kTokens * c.group));
  std::vector<float> ref_lse(lse.size());
  const AlignedScratch scratch(tuned_attention_kernels().scratch_bytes(shape_of(c)));
  Segment own = heads.segment(1);
  own.n_rows = kTokens;
  tile(tuned_attention_kernels(), c, q, kTokens, heads.segment(0), own, tuned, lse,
       scratch.data.get());
  tile(ref_attention_kernels(), c, q, kTokens, heads.segment(0), own, ref, ref_lse, nullptr);
  check(tuned, ref, "tile");
  check(lse, ref_lse, "tile lse");
}

void bench_column_max(benchmark::State& state, const Case& c, const Heads& heads) {
  const AttentionKernels& kernels = tuned_attention_kernels();
  const std::vector<float> q = random_queries(c, kTileTokens);
  const std::vector<float> lse(static_cast<size_t>(kTileTokens * c.group), 3.0f);
  std::vector<float> best(static_cast<size_t>(c.n_rows), -std::numeric_limits<float>::infinity());
  const AlignedScratch scratch(kernels.scratch_bytes(shape_of(c)));
  for (auto _ : state) {
    kernels.column_max(shape_of(c), {q.data(), kTileTokens, c.group * c.head_dim}, lse.data(),
                       heads.segment(0), 0, c.n_rows, best.data(), scratch.data.get());
    benchmark::DoNotOptimize(best.data());
  }
  report(state, static_cast<double>(2 * c.head_dim * c.n_rows),
         static_cast<double>(2 * kTileTokens * c.group * c.head_dim * c.n_rows));
}

void check_column_max(const Case& c, const Heads& heads) {
  const std::vector<float> q = random_queries(c, 2);
  const std::vector<float> lse(static_cast<size_t>(2 * c.group), 3.0f);
  const AlignedScratch scratch(tuned_attention_kernels().scratch_bytes(shape_of(c)));
  std::vector<float> tuned(static_cast<size_t>(c.n_rows), -100.0f);
  std::vector<float> ref = tuned;
  const Queries queries = {q.data(), 2, c.group * c.head_dim};
  tuned_attention_kernels().column_max(shape_of(c), queries, lse.data(), heads.segment(0), 0,
                                       c.n_rows, tuned.data(), scratch.data.get());
  ref_attention_kernels().column_max(shape_of(c), queries, lse.data(), heads.segment(0), 0,
                                     c.n_rows, ref.data(), nullptr);
  check(tuned, ref, "column_max");
}

using Body = void (*)(benchmark::State&, const Case&, const Heads&);
using Check = void (*)(const Case&, const Heads&);

// The rows of the benchmark `name`, checked; only one benchmark's rows are held at a time.
const Heads& loaded_heads(const std::string& name, const Case& c, int64_t bytes,
                          Check check_first) {
  static std::mutex mutex;
  static std::unique_ptr<Heads> heads;
  static std::string loaded;
  const std::lock_guard lock(mutex);
  if (loaded != name) {
    heads = std::make_unique<Heads>(c, bytes);
    loaded = name;
    check_first(c, *heads);
  }
  return *heads;
}

void add(const std::string& kind, const Case& c, int64_t bytes, int threads, Body body,
         Check check_first) {
  const std::string name = kind + "/d" + std::to_string(c.head_dim) + "/g" +
                           std::to_string(c.group) + "/rows" + std::to_string(c.n_rows);
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) { body(state, c, loaded_heads(name, c, bytes, check_first)); })
      ->Threads(threads)
      ->UseRealTime();
}

}  // namespace

void register_all() {
  for (const int64_t n_rows : {8192, 32768}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const int64_t group : {1, 3, 4, 6, 7, 8}) {
        for (const int threads : {1, 2}) {
          add("decode", {head_dim, group, n_rows}, kWorkingSetBytes, threads, bench_decode,
              check_decode);
        }
      }
    }
  }
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const int64_t group : {3, 4, 6, 7}) {
      add("tile", {head_dim, group, 8192}, 0, 1, bench_tile, check_tile);
      add("column_max", {head_dim, group, 8192}, 0, 1, bench_column_max, check_column_max);
    }
  }
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  limits = probe_machine();
  std::printf("target %s; read %.1f GB/s with 1 thread, %.1f with 2; FMA %.1f GFLOP/s per thread\n",
              std::string(tuned_target_name()).c_str(), limits.read_bytes_per_s_1 / 1e9,
              limits.read_bytes_per_s_2 / 1e9, limits.fma_flops_per_s / 1e9);
  register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

}  // namespace ctxzip::bench

int main(int argc, char** argv) { return ctxzip::bench::run(argc, argv); }
