// Turns observed queries into a fitted sketch, entropy gates and a z, a slice of work at a time.
//
// Even steps fit V and the gates, odd steps calibrate z on the hard queries that pass their gate,
// pooled over the heads, so that no query judges what it shaped (VestigeKV, section 4.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "recall/conformal.h"
#include "recall/recall_options.h"
#include "recall/recall_state.h"
#include "recall/row_index.h"

namespace ctxzip {

// What the archive is, as seen by a calibration; bit u of `kept` says that row u is no part of it.
struct ArchiveView {
  MlaRows rows;  // closed rows
  int64_t n_rows = 0;
  std::span<const uint64_t> kept;
};

class Calibrator {
 public:
  Calibrator(const MlaKernels& kernels, const MlaShape& shape, const RecallOptions& options);

  const CalibrationState& state() const { return state_; }
  // (head): queries whose kept entropy is below are not scanned; -inf: all are.
  std::span<const float> gates() const { return gates_; }

  bool done() const { return stage_ == Stage::kDone; }
  bool wants_queries() const { return stage_ == Stage::kObserve && n_steps_ < max_steps_; }
  // One decode step: queries (head, row_dim), the best kept score and the kept entropy of each head
  // (head). Allocates nothing.
  void observe(const float* queries, const float* best_kept, const float* entropy) noexcept;

  // The next slice, of about max_rows rows or one indivisible piece (the eigenproblem). False:
  // there is nothing to do until more queries come.
  bool work(const ArchiveView& archive, RowIndex& index, int64_t max_rows);

  // Observed queries no longer fit the archive: they are dropped, and a finished calibration is
  // stale.
  void partition_changed(RowIndex& index);
  // What was calibrated does not hold what it promised: observes and calibrates anew. It serves
  // until then, promising nothing.
  void target_missed(RowIndex& index);
  // As new.
  void clear();

  // Observed steps that wait for a calibration, and forgetting the newest of them.
  int64_t n_observed() const { return n_steps_; }
  void forget_after(int64_t n_steps);
  CalibrationRecord record(const RowIndex& index) const;
  // As it was when the record was made; `archive` and the index's serving entries are already so.
  void restore(const CalibrationRecord& record, const ArchiveView& archive, RowIndex& index);

 private:
  using Stage = CalibrationStage;

  const float* queries_of(int64_t step) const;
  uint32_t standing_notes() const;
  void restart(RowIndex& index);
  bool enough() const;
  void label(const ArchiveView& archive, int64_t max_rows);
  SketchBasis fit() const;
  void finish(const RowIndex& index);

  MlaKernels kernels_;
  MlaShape shape_;
  RecallOptions options_;
  int64_t rank_;
  int64_t max_steps_;
  CalibrationState state_;
  std::vector<float> gates_;
  Stage stage_ = Stage::kObserve;

  int64_t n_steps_ = 0;
  int64_t n_labelled_ = 0;
  int64_t labelled_rows_ = 0;  // of step n_labelled_
  bool completed_ = false;     // the sketch had too few queries
  Mapping queries_;            // (step, head, row_dim)
  Mapping scratch_;
  std::vector<float> best_kept_;  // (step, head), like those below
  std::vector<float> entropy_;
  std::vector<float> best_archived_;  // -inf: not seen
  std::vector<uint32_t> target_;
};

// The rank that the options ask for, for this latent size.
int64_t sketch_rank(const MlaShape& shape, const RecallOptions& options);

// The top `rank` eigenvectors (rank, latent) of the covariance of n vectors of `latent` values that
// lie `stride` apart, rounded to float; completed orthonormally when they span less.
std::vector<float> principal_directions(std::span<const float* const> vectors, int64_t latent,
                                        int64_t rank);

}  // namespace ctxzip
