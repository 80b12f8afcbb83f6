// Decode attention at true dimensions (rows of 512 + 64, 32 heads): dense against VestigeKV, with
// planted winners. Both take turns: times and their ratio are medians, shares of the FMA peak
// (itself the best of many tries) are those of the fastest step. "effective" is rows over those
// attended to without recall: kept rows, sinks and tail. Then the same rows where recall overflows.
//   bench_recall [MOST_ROWS [THREADS [FEWEST_ROWS [cpu]]]]      cpu: CPU time, for one thread
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/half.h"
#include "machine_probe.h"
#include "median.h"
#include "recall/thread_team.h"

namespace ctxzip::bench {
namespace {

constexpr unsigned kSeed = 576;
constexpr int64_t kBlockRows = 4096;
constexpr int64_t kTailRows = 2048;
constexpr int64_t kRows[] = {8192, 32768, 131072, 524288};
constexpr int kSeekingHeads = 8;  // heads of a step that look for a row of their own
const MlaShape kShape = {.latent = 512, .branch = 64, .n_head = 32, .scale = 1 / std::sqrt(576.0f)};
constexpr double kRowBytes = 1152;
constexpr double kDenseFlops = 2 * 32 * (576 + 512);
constexpr double kScanFlops = 2 * 32 * 129;

// On a machine with other work CPU time is what a step costs; with one thread it is otherwise the
// time on the clock.
bool count_cpu_time = false;

double now() {
  timespec time = {};
  clock_gettime(count_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Source {
 public:
  // f16 rows; every 40th has a branch that stands out.
  std::vector<uint16_t> rows(int64_t n, int64_t first) {
    std::vector<float> values(static_cast<size_t>(n * 576));
    for (float& value : values) value = normal_(random_);
    for (int64_t row = 0; row < n; ++row) {
      const float scale = (first + row) % 40 == 0 ? 1.5f : 0.4f;
      for (int64_t dim = 512; dim < 576; ++dim) {
        values[static_cast<size_t>(row * 576 + dim)] *= scale;
      }
    }
    std::vector<uint16_t> halves(values.size());
    to_f16(values.data(), halves.data(), n * 576);
    return halves;
  }

  // Most heads look at kept rows; some look for an archived row, clearly enough to win.
  std::vector<float> queries(const RecallCache& cache) {
    std::vector<float> q(32 * 576);
    for (float& value : q) value = 0.5f * normal_(random_);
    const auto* closed = static_cast<const uint16_t*>(cache.closed_rows().data);
    const auto* kept = static_cast<const uint16_t*>(cache.kept_rows().data);
    for (int64_t head = 0; head < 32; ++head) {
      const bool seeks = head < kSeekingHeads;
      const auto n = seeks ? cache.n_closed() : static_cast<int64_t>(cache.kept().size());
      const int64_t row = std::uniform_int_distribution<int64_t>(0, n - 1)(random_);
      const uint16_t* target = (seeks ? closed : kept) + row * 576;
      for (int64_t dim = 0; dim < 576; ++dim) {
        q[static_cast<size_t>(head * 576 + dim)] += 0.5f * half_to_float(target[dim]);
      }
    }
    return q;
  }

 private:
  std::mt19937 random_{kSeed};
  std::normal_distribution<float> normal_;
};

void fill(RecallCache& cache, int64_t n_rows, Source& source) {
  for (int64_t row = 0; row < n_rows; row += kTailRows) {
    cache.append(source.rows(kTailRows, row).data(), kTailRows);
    cache.maintain(1);
  }
}

struct Stalls {
  double longest = 0;
  double total = 0;
};

// Decodes and maintains until the calibration is done.
Stalls calibrate(RecallCache& cache, DecodeStep& step, ThreadTeam& team, Source& source) {
  std::vector<float> out(32 * 512);
  Stalls stalls;
  while (cache.calibration().phase != CalibrationPhase::kCalibrated) {
    const std::vector<float> q = source.queries(cache);
    team.attend(step, q.data(), out.data());
    for (bool more = true; more;) {
      const double start = now();
      more = cache.maintain(4096);
      const double seconds = now() - start;
      stalls.longest = std::max(stalls.longest, seconds);
      stalls.total += seconds;
    }
  }
  return stalls;
}

// Closes n_rows - kTailRows rows: whole blocks and half a one.
std::unique_ptr<RecallCache> make_cache(int64_t n_rows, const RecallOptions& options,
                                        Source& source) {
  auto cache = std::make_unique<RecallCache>(tuned_mla_kernels(), kShape, RowType::kF16,
                                             n_rows + kBlockRows, options);
  fill(*cache, n_rows - kTailRows, source);
  cache->close_now();
  cache->append(source.rows(kTailRows, n_rows - kTailRows).data(), kTailRows);
  return cache;
}

RecallOptions bench_options() {
  RecallOptions options;
  options.block_rows = kBlockRows;
  return options;
}

struct Measured {
  std::vector<double> recall_times;
  std::vector<double> dense_times;
  double fetched = 0;
  double bytes = 0;
  int64_t triggered = 0;
  int64_t overflowed = 0;

  double steps() const { return static_cast<double>(recall_times.size()); }
  double ratio() const {
    std::vector<double> ratios;
    for (size_t at = 0; at < dense_times.size(); ++at) {
      ratios.push_back(dense_times[at] / recall_times[at]);
    }
    return median(ratios);
  }
};

// A step as the cache has it and one that attends to everything, in turns.
Measured measure(const RecallCache& cache, DecodeStep& step, ThreadTeam& team, Source& source) {
  std::vector<float> out(32 * 512);
  Measured result;
  const double wanted = std::max(2.0, 4e-5 * static_cast<double>(cache.n_rows()));
  int steps = 0;
  for (double spent = 0; (spent < wanted && steps < 200) || steps < 15; ++steps) {
    const std::vector<float> q = source.queries(cache);
    double start = now();
    team.attend(step, q.data(), out.data());
    result.recall_times.push_back(now() - start);
    result.fetched += static_cast<double>(step.counts().fetched_rows);
    result.bytes += static_cast<double>(step.counts().bytes_read);
    result.triggered += step.counts().fetched_rows > 0 ? 1 : 0;
    result.overflowed += step.counts().overflowed ? 1 : 0;
    step.set_dense(true);
    start = now();
    team.attend(step, q.data(), out.data());
    result.dense_times.push_back(now() - start);
    step.set_dense(false);
    spent += result.recall_times.back() + result.dense_times.back();
  }
  return result;
}

void report(int64_t n_rows, int n_threads, const MachineLimits& limits) {
  Source source;
  const auto cache = make_cache(n_rows, bench_options(), source);
  ThreadTeam team(n_threads);
  DecodeStep step(*cache);
  const Stalls stalls = calibrate(*cache, step, team, source);
  const Measured found = measure(*cache, step, team, source);

  const auto rows = static_cast<double>(n_rows);
  const double near = static_cast<double>(cache->kept().size()) + kTailRows;
  const double fetched = found.fetched / found.steps();
  const double flop_ratio =
      rows * kDenseFlops /
      ((near + fetched) * kDenseFlops + static_cast<double>(cache->n_closed()) * kScanFlops);
  const double ratio = found.ratio();
  const double dense_best = *std::min_element(found.dense_times.begin(), found.dense_times.end());
  const double recall_best =
      *std::min_element(found.recall_times.begin(), found.recall_times.end());
  const double peak = limits.fma_flops_per_s * n_threads;
  std::printf(
      "%7lld %7d %9.2f %9.2f %8.2fx %7.2fx %7.2fx %5.0f%% %7.2fx %6.2f%% %6.0f%% %8.0f%% %9.0f%% "
      "%7.2f %6.0f %8.2f\n",
      static_cast<long long>(n_rows), n_threads, median(found.dense_times) * 1e3,
      median(found.recall_times) * 1e3, cache->effective_ratio(), ratio, flop_ratio,
      100 * ratio / flop_ratio, rows * kRowBytes * found.steps() / found.bytes,
      100 * fetched / rows, 100 * static_cast<double>(found.triggered) / found.steps(),
      100 * rows * kDenseFlops / dense_best / peak,
      100 * (rows * kDenseFlops / flop_ratio) / recall_best / peak, cache->calibration().z,
      stalls.longest * 1e3, stalls.total);
  std::fflush(stdout);
}

// Steps in which more rows fire than may be fetched, so that they attend to everything, with the
// archive in a mapped file. The first one finds no page of it mapped.
void report_overflow(int64_t n_rows, int n_threads) {
  Source source;
  RecallOptions options = bench_options();
  options.max_fetched = 1;
  options.archive_path = (std::filesystem::temp_directory_path() / "bench_recall").string();
  const auto cache = make_cache(n_rows, options, source);
  ThreadTeam team(n_threads);
  DecodeStep step(*cache);
  const Measured found = measure(*cache, step, team, source);
  const double dense_bytes = static_cast<double>(n_rows) * kRowBytes;
  std::printf("%7lld %7d %9.2f %11.2f %8.2f %8.2fx %7.2fx %9.1f %11.1f %8.0f%%\n",
              static_cast<long long>(n_rows), n_threads, median(found.dense_times) * 1e3,
              median(found.recall_times) * 1e3, found.recall_times.front() * 1e3,
              cache->effective_ratio(), found.ratio(), dense_bytes / 1e6,
              found.bytes / found.steps() / 1e6,
              100 * static_cast<double>(found.overflowed) / found.steps());
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const int64_t longest = argc > 1 ? std::atoll(argv[1]) : 131072;
  const int only_threads = argc > 2 ? std::atoi(argv[2]) : 0;  // 0: 1 and 2
  const int64_t shortest = argc > 3 ? std::atoll(argv[3]) : 0;
  count_cpu_time = argc > 4;
  const auto for_each_case = [&](const auto& measure_case) {
    for (const int64_t n_rows : kRows) {
      for (const int n_threads : {1, 2}) {
        if (n_rows > longest || n_rows < shortest) continue;
        if (only_threads == 0 || n_threads == only_threads) measure_case(n_rows, n_threads);
      }
    }
  };
  const MachineLimits limits = probe_machine();
  std::printf("FMA %.1f GFLOP/s per thread\n\n", limits.fma_flops_per_s / 1e9);
  std::printf(
      "   rows threads  dense ms recall ms effective   ratio   FLOPs of it   bytes fetched  steps "
      "dense/FMA recall/FMA       z stall ms  total s\n");
  for_each_case([&](int64_t n_rows, int n_threads) { report(n_rows, n_threads, limits); });
  std::printf(
      "\nToo many rows fire, the archive is a mapped file\n"
      "   rows threads  dense ms overflow ms first ms effective   ratio  dense MB overflow MB "
      "overflowed\n");
  for_each_case(report_overflow);
  return 0;
}

}  // namespace
}  // namespace ctxzip::bench

int main(int argc, char** argv) { return ctxzip::bench::run(argc, argv); }
