// Speed of the tuned attention kernels as a share of this machine's limits.
//
// Each line reports bytes of K and V rows read and floating-point operations of the two products
// per second. `share` is the time that the slower of the two limits would take over the time taken.
// Decode over quantised rows alternates with decode over f16 rows, and decode over the 30% of a
// head's rows that a zip keeps (`kept/`) with decode over all of them: `vs_f16` and `vs_full` are
// the medians of the ratios of neighbouring times.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "cache/quantised_rows.h"
#include "core/stopwatch.h"
#include "kernels/attention.h"
#include "kernels/half.h"
#include "machine_probe.h"

namespace ctxzip::bench {
namespace {

constexpr uint32_t kSeed = 20250719;
// More rows than any cache holds, so that decode reads memory as it does in a model.
constexpr int64_t kWorkingSetBytes = int64_t{160} << 20;
constexpr int64_t kTileTokens = 32;
constexpr double kKeptShare = 0.3;
constexpr float kTolerance = 2e-4f;
// Decode over quantised rows rounds queries and weights; tests/kernels has the bounds.
constexpr float kQuantisedTolerance = 1e-2f;

MachineLimits limits;

struct Case {
  int64_t head_dim;
  int64_t group;
  int64_t n_rows;
  RowType type = RowType::kF16;
};

// K and V of several heads with random contents. Quantised heads are copies of one.
class Heads {
 public:
  Heads(const Case& shape, int64_t bytes) : shape_(shape) {
    const QuantisedLayout layout = {shape.type, shape.head_dim};
    const int64_t dense_bytes = 2 * shape.head_dim * shape.n_rows;
    const bool quantised = is_quantised(shape.type);
    k_bytes_ = quantised ? layout.key_bytes(shape.n_rows) : dense_bytes;
    v_bytes_ = quantised ? layout.value_bytes(shape.n_rows) : dense_bytes;
    n_heads_ = std::max<int64_t>(2, bytes / pair_bytes());
    rows_.resize(static_cast<size_t>(n_heads_ * pair_bytes()));
    const int64_t n_random = quantised ? 1 : n_heads_;
    std::vector<uint16_t> halves = random_halves(2 * n_random * shape.head_dim * shape.n_rows);
    if (!quantised) {
      std::memcpy(rows_.data(), halves.data(), rows_.size());
      return;
    }
    const auto half = static_cast<int64_t>(halves.size()) / 2;
    quantise_keys(layout, {RowType::kF16, halves.data(), shape.n_rows}, rows_.data());
    quantise_values(layout, {RowType::kF16, halves.data() + half, shape.n_rows},
                    rows_.data() + k_bytes_);
    for (int64_t head = 1; head < n_heads_; ++head) {
      std::copy_n(rows_.begin(), pair_bytes(), rows_.begin() + head * pair_bytes());
    }
  }

  int64_t size() const { return n_heads_; }
  // Bytes of K and V of one head.
  int64_t pair_bytes() const { return k_bytes_ + v_bytes_; }
  Segment segment(int64_t head) const {
    const std::byte* k = rows_.data() + head * pair_bytes();
    Segment segment = {.k = k, .v = k + k_bytes_, .n_rows = shape_.n_rows};
    if (is_quantised(shape_.type)) segment.quantised = shape_.type;
    return segment;
  }

 private:
  static std::vector<uint16_t> random_halves(int64_t n) {
    std::mt19937 random(kSeed);
    std::normal_distribution<float> normal;
    std::vector<float> values(1 << 16);
    for (float& value : values) value = normal(random);
    std::vector<uint16_t> halves(static_cast<size_t>(n));
    for (size_t at = 0; at < halves.size(); at += values.size()) {
      const size_t n_here = std::min(values.size(), halves.size() - at);
      to_f16(values.data(), halves.data() + at, static_cast<int64_t>(n_here));
    }
    return halves;
  }

  Case shape_;
  int64_t k_bytes_ = 0;
  int64_t v_bytes_ = 0;
  int64_t n_heads_ = 0;
  std::vector<std::byte> rows_;
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
  kernels.merge_blocks(shape, partials.data(), block_floats, n_blocks, out);
}

void check(const std::vector<float>& tuned, const std::vector<float>& ref, const char* what,
           float tolerance = kTolerance) {
  for (size_t at = 0; at < ref.size(); ++at) {
    if (std::abs(tuned[at] - ref[at]) <= tolerance * (1 + std::abs(ref[at]))) continue;
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
  report(state, static_cast<double>(heads.pair_bytes()),
         static_cast<double>(4 * c.group * c.head_dim * c.n_rows));
}

// As bench_decode over the first n_rows of the case, with a head of `other` between any two heads,
// half of the working set away from it.
void bench_decode_beside(benchmark::State& state, const Case& c, const Heads& heads,
                         const Heads& other, const char* counter) {
  const AttentionShape shape = shape_of(c);
  const std::vector<float> q = random_queries(c, 1);
  std::vector<float> out(q.size());
  std::vector<float> partials;
  std::vector<double> ratios;
  double bytes = 0;
  const auto timed = [&](const Segment& segment) {
    const auto start = std::chrono::steady_clock::now();
    decode(tuned_attention_kernels(), shape, q.data(), segment, partials, out.data());
    benchmark::DoNotOptimize(out.data());
    return seconds_since(start);
  };
  int64_t turn = state.thread_index();
  for (auto _ : state) {
    Segment part = heads.segment(turn % heads.size());
    const double share = static_cast<double>(c.n_rows) / static_cast<double>(part.n_rows);
    part.n_rows = c.n_rows;
    const double other_time = timed(other.segment((turn + other.size() / 2) % other.size()));
    const double time = timed(part);
    state.SetIterationTime(time);
    ratios.push_back(time / other_time);
    turn += state.threads();
    bytes = share * static_cast<double>(heads.pair_bytes());
  }
  report(state, bytes, static_cast<double>(4 * c.group * c.head_dim * c.n_rows));
  const auto middle = ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2);
  std::nth_element(ratios.begin(), middle, ratios.end());
  state.counters[counter] = benchmark::Counter(*middle, benchmark::Counter::kAvgThreads);
}

void check_decode(const Case& c, const Heads& heads) {
  const std::vector<float> q = random_queries(c, 1);
  std::vector<float> tuned(q.size());
  std::vector<float> ref(q.size());
  std::vector<float> partials;
  decode(tuned_attention_kernels(), shape_of(c), q.data(), heads.segment(0), partials,
         tuned.data());
  decode(ref_attention_kernels(), shape_of(c), q.data(), heads.segment(0), partials, ref.data());
  check(tuned, ref, "decode", is_quantised(c.type) ? kQuantisedTolerance : kTolerance);
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

std::string name_of(const std::string& kind, const Case& c) {
  return kind + "/" + std::string(row_type_name(c.type)) + "/d" + std::to_string(c.head_dim) +
         "/g" + std::to_string(c.group) + "/rows" + std::to_string(c.n_rows);
}

// The rows of the benchmark `name`, checked; only two sets of rows are held at a time, those of the
// benchmark and the f16 rows beside them.
const Heads& loaded_heads(const std::string& name, const Case& c, int64_t bytes,
                          Check check_first) {
  static std::mutex mutex;
  static std::unique_ptr<Heads> heads[2];
  static std::string loaded[2];
  const std::lock_guard lock(mutex);
  const size_t slot = is_quantised(c.type) ? 1 : 0;
  if (loaded[slot] != name) {
    heads[slot] = std::make_unique<Heads>(c, bytes);
    loaded[slot] = name;
    check_first(c, *heads[slot]);
  }
  return *heads[slot];
}

void add(const std::string& kind, const Case& c, int64_t bytes, int threads, Body body,
         Check check_first) {
  const std::string name = name_of(kind, c);
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) { body(state, c, loaded_heads(name, c, bytes, check_first)); })
      ->Threads(threads)
      ->UseRealTime();
}

void add_beside_f16(const Case& c, int threads) {
  const std::string name = name_of("decode", c);
  Case dense = c;
  dense.type = RowType::kF16;
  const std::string dense_name = name_of("decode", dense);
  benchmark::RegisterBenchmark(
      name.c_str(),
      [=](benchmark::State& state) {
        const Heads& beside = loaded_heads(dense_name, dense, kWorkingSetBytes, check_decode);
        bench_decode_beside(state, c, loaded_heads(name, c, kWorkingSetBytes, check_decode), beside,
                            "vs_f16");
      })
      ->Threads(threads)
      ->UseManualTime();
}

void add_kept(const Case& c, int threads) {
  benchmark::RegisterBenchmark(
      name_of("kept", c).c_str(),
      [=](benchmark::State& state) {
        const Heads& heads = loaded_heads(name_of("decode", c), c, kWorkingSetBytes, check_decode);
        Case kept = c;
        kept.n_rows = static_cast<int64_t>(kKeptShare * static_cast<double>(c.n_rows));
        bench_decode_beside(state, kept, heads, heads, "vs_full");
      })
      ->Threads(threads)
      ->UseManualTime();
}

}  // namespace

void register_all() {
  constexpr int64_t kDecodeShapes[][2] = {{64, 1},  {64, 3},  {64, 4},  {64, 7},
                                          {128, 4}, {128, 6}, {128, 8}, {256, 4}};
  for (const int64_t n_rows : {8192, 32768}) {
    for (const auto& [head_dim, group] : kDecodeShapes) {
      const Case dense = {head_dim, group, n_rows};
      for (const int threads : {1, 2}) {
        add("decode", dense, kWorkingSetBytes, threads, bench_decode, check_decode);
        add_kept(dense, threads);
      }
      for (const RowType type : {RowType::kQ8, RowType::kQ4}) {
        for (const int threads : {1, 2}) add_beside_f16({head_dim, group, n_rows, type}, threads);
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
