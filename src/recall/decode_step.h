// One token's attention over a RecallCache: kept rows and tail, then the archived rows that the
// index finds, in one exact softmax (arXiv VestigeKV, section 4.2, equation 4).
//
// A step is a sequence of phases. Every thread of a team calls run(phase) for each phase in turn,
// with a barrier in between (ggml's, between custom nodes, or ThreadTeam's); items are handed out
// to whichever thread is free and none shares a sum with another, so that results do not depend on
// threads. Nothing is allocated after construction.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "recall/recall_cache.h"

namespace ctxzip {

struct StepCounts {
  int64_t near_rows = 0;        // kept and tail; all rows when dense
  int64_t open_heads = 0;       // whose gate let them scan
  int64_t scanned_entries = 0;  // index entries read
  int64_t fired_rows = 0;       // archived rows that any head asked for
  int64_t fetched_rows = 0;     // of these attended to (fewer with top_per_head)
  int64_t bytes_read = 0;       // cache rows and index entries
  bool dense = false;           // attended to everything, being short
  bool overflowed = false;      // attended to everything, too many rows having fired
};

// Sums over steps.
struct StepTotals {
  int64_t steps = 0;
  int64_t triggered = 0;  // steps that fetched
  int64_t dense = 0;
  int64_t overflowed = 0;
  int64_t fired_rows = 0;
  int64_t fetched_rows = 0;
  int64_t scanned_entries = 0;
  int64_t bytes_read = 0;

  void add(const StepCounts& step) noexcept;
};

class DecodeStep {
 public:
  static constexpr int kPhases = 7;

  // The cache must outlive the step.
  explicit DecodeStep(RecallCache& cache);

  // A step for queries (head, row_dim), unscaled, into out (head, latent); both stay the caller's
  // and valid until the last phase. One thread, before the others start.
  void begin(const float* queries, float* out) noexcept;
  void run(int phase) noexcept;
  // begin() and all phases on this thread.
  void attend(const float* queries, float* out) noexcept;

  // Attends to every row from the next step on, whatever the options say: for comparison.
  void set_dense(bool dense) { dense_ = dense; }

  // Of the last step.
  const StepCounts& counts() const { return counts_; }
  const StepTotals& totals() const { return totals_; }
  // Archived rows attended to, ascending.
  std::span<const uint32_t> fetched() const {
    return {fetched_.data(), static_cast<size_t>(counts_.fetched_rows)};
  }
  // Lemma 3 for the last step (head): an upper limit of the softmax mass of rows that were not
  // attended to, over the attended mass; 1 says nothing. Reads the whole index and allocates. The
  // cache must not have changed since.
  std::vector<double> excluded_mass_limits() const;

 private:
  enum Phase { kPack, kNear, kDecide, kScan, kGather, kFetch, kMerge };
  // Rows [0, n) as blocks of equal length, at most kMaxBlocks of them.
  struct Blocks {
    int64_t n_rows = 0;
    int64_t rows_each = 1;
    int64_t n = 0;
    explicit Blocks(int64_t n_rows = 0);
  };

  float* partial(int64_t slot) const;
  void attend_block(const MlaRows& rows, const Blocks& blocks, int64_t block,
                    int64_t slot) noexcept;
  void pack() noexcept;
  void near(int64_t item) noexcept;
  void decide() noexcept;
  void prepare_scan() noexcept;
  void scan(int64_t item) noexcept;
  void sound_thresholds(int64_t row, float* thresholds) const noexcept;
  void gather() noexcept;
  void keep_best_of_each_head() noexcept;
  void finish() noexcept;
  void merge(int64_t item) noexcept;
  int64_t list_partials(int64_t n_fetched_blocks) noexcept;

  RecallCache& cache_;
  MlaKernels kernels_;
  MlaShape shape_;
  int64_t top_per_head_;
  const float* queries_ = nullptr;
  float* out_ = nullptr;
  bool dense_ = false;
  bool scanning_ = false;
  Blocks near_blocks_;
  Blocks tail_blocks_;
  Blocks fetched_blocks_;
  std::array<std::atomic<int64_t>, kPhases> next_ = {};
  std::array<int64_t, kPhases> n_items_ = {};
  StepCounts counts_;
  StepTotals totals_;

  Mapping packed_;       // queries
  Mapping partials_;     // (slot)
  Mapping scan_packed_;  // of the open heads
  Mapping projection_scratch_;
  QueryProjection projection_;
  std::vector<const float*> merged_;
  std::vector<float> best_kept_;  // (head)
  std::vector<float> entropy_;
  std::vector<int64_t> open_;        // heads that scan
  std::vector<float> scan_queries_;  // (open head, side | sketch)
  std::vector<float> slopes_;        // (padded open head), like thresholds
  std::vector<float> thresholds_;
  std::vector<uint64_t> fired_;  // bit per closed row
  std::vector<uint32_t> fetched_;
  std::vector<float> entry_scores_;  // (padded head)
  struct Found {
    float score;
    uint32_t row;
  };
  std::vector<Found> best_found_;  // (open head, top_per_head), a heap each
  std::vector<int64_t> n_found_;   // (open head)
};

}  // namespace ctxzip
