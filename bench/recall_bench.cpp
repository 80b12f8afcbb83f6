// Decode attention at true dimensions (rows of 512 + 64, 32 heads): dense against VestigeKV, with
// planted winners. Both take turns: times and their ratio are medians, shares of the FMA peak
// (itself the best of many tries) are those of the fastest step.
//   bench_recall [MOST_ROWS [THREADS [FEWEST_ROWS [cpu]]]]      cpu: CPU time, for one thread
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
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

void report(int64_t n_rows, int n_threads, const MachineLimits& limits) {
  Source source;
  RecallOptions options;
  options.block_rows = kBlockRows;
  // Closes n_rows - kTailRows rows: whole blocks and half a one.
  RecallCache cache(tuned_mla_kernels(), kShape, RowType::kF16, n_rows + kBlockRows, options);
  fill(cache, n_rows - kTailRows, source);
  cache.close_now();
  cache.append(source.rows(kTailRows, n_rows - kTailRows).data(), kTailRows);

  ThreadTeam team(n_threads);
  DecodeStep step(cache);
  const Stalls stalls = calibrate(cache, step, team, source);

  std::vector<float> out(32 * 512);
  std::vector<float> dense_out(out.size());
  std::vector<double> recall_times;
  std::vector<double> dense_times;
  double fired = 0;
  double bytes = 0;
  int steps = 0;
  int triggered = 0;
  const double wanted = std::max(2.0, 4e-5 * static_cast<double>(n_rows));
  for (double spent = 0; (spent < wanted && steps < 200) || steps < 15; ++steps) {
    const std::vector<float> q = source.queries(cache);
    double start = now();
    team.attend(step, q.data(), out.data());
    recall_times.push_back(now() - start);
    fired += static_cast<double>(step.counts().fetched_rows);
    bytes += static_cast<double>(step.counts().bytes_read);
    triggered += step.counts().fetched_rows > 0 ? 1 : 0;
    step.set_dense(true);
    start = now();
    team.attend(step, q.data(), dense_out.data());
    dense_times.push_back(now() - start);
    step.set_dense(false);
    spent += recall_times.back() + dense_times.back();
  }
  const auto rows = static_cast<double>(n_rows);
  const double near = static_cast<double>(cache.kept().size()) + kTailRows;
  const double share = fired / steps / rows;
  const double flop_ratio =
      rows * kDenseFlops /
      ((near + fired / steps) * kDenseFlops + static_cast<double>(cache.n_closed()) * kScanFlops);
  const double dense = median(dense_times);
  const double recall = median(recall_times);
  std::vector<double> ratios;
  for (size_t at = 0; at < dense_times.size(); ++at) {
    ratios.push_back(dense_times[at] / recall_times[at]);
  }
  const double ratio = median(ratios);
  const double dense_best = *std::min_element(dense_times.begin(), dense_times.end());
  const double recall_best = *std::min_element(recall_times.begin(), recall_times.end());
  const double peak = limits.fma_flops_per_s * n_threads;
  const CalibrationState& state = cache.calibration();
  std::printf(
      "%7lld %7d %9.2f %9.2f %7.2fx %7.2fx %5.0f%% %7.2fx %6.2f%% %6.0f%% %8.0f%% %9.0f%% %7.2f "
      "%6.0f %8.2f\n",
      static_cast<long long>(n_rows), n_threads, dense * 1e3, recall * 1e3, ratio, flop_ratio,
      100 * ratio / flop_ratio, rows * 1152 * steps / bytes, 100 * share, 100.0 * triggered / steps,
      100 * rows * kDenseFlops / dense_best / peak,
      100 * (rows * kDenseFlops / flop_ratio) / recall_best / peak, state.z, stalls.longest * 1e3,
      stalls.total);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const int64_t longest = argc > 1 ? std::atoll(argv[1]) : 131072;
  const int only_threads = argc > 2 ? std::atoi(argv[2]) : 0;  // 0: 1 and 2
  const int64_t shortest = argc > 3 ? std::atoll(argv[3]) : 0;
  count_cpu_time = argc > 4;
  const MachineLimits limits = probe_machine();
  std::printf("FMA %.1f GFLOP/s per thread\n\n", limits.fma_flops_per_s / 1e9);
  std::printf(
      "   rows threads  dense ms recall ms   ratio   FLOPs of it   bytes fetched  steps dense/FMA "
      "recall/FMA       z stall ms  total s\n");
  for (const int64_t n_rows : kRows) {
    for (const int n_threads : {1, 2}) {
      if (n_rows > longest || n_rows < shortest || (only_threads != 0 && n_threads != only_threads))
        continue;
      report(n_rows, n_threads, limits);
    }
  }
  return 0;
}

}  // namespace
}  // namespace ctxzip::bench

int main(int argc, char** argv) { return ctxzip::bench::run(argc, argv); }
