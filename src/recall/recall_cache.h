// VestigeKV's cache of one MLA layer (arXiv VestigeKV, section 4): closed rows, split into kept and
// archived by their sigma, and an open tail. Nothing is ever deleted or rounded.
//
// Rows are appended and decode steps (decode_step.h) attend; closing blocks and calibrating is
// maintain()'s, between steps. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "recall/calibrator.h"
#include "recall/recall_options.h"
#include "recall/recall_state.h"
#include "recall/row_index.h"
#include "recall/row_store.h"
#include "recall/sigma.h"

namespace ctxzip {

class RecallCache {
 public:
  // Reserves address space for `capacity` rows of `type` (f32, f16); memory follows the rows.
  // Throws Error{kInvalidArgument} for options that do not fit together, kIo for the archive.
  RecallCache(const MlaKernels& kernels, const MlaShape& shape, RowType type, int64_t capacity,
              const RecallOptions& options);

  const MlaKernels& kernels() const { return kernels_; }
  const MlaShape& shape() const { return shape_; }
  const RecallOptions& options() const { return options_; }
  int64_t capacity() const { return capacity_; }
  size_t row_bytes() const { return row_bytes_; }

  int64_t n_rows() const { return n_closed() + n_tail_; }
  int64_t n_closed() const { return store_.n_rows(); }
  int64_t n_tail() const { return n_tail_; }
  int64_t n_archived() const { return n_closed() - static_cast<int64_t>(kept_.size()); }
  // Ascending.
  std::span<const uint32_t> kept() const { return kept_; }
  // Bit u: closed row u is kept. (word)
  std::span<const uint64_t> kept_bits() const { return kept_bits_; }
  std::span<const float> sigma() const { return sigma_; }
  // All rows / those attended to without recall; 1 for an empty cache.
  double effective_ratio() const;

  // (row, row_dim) each: closed rows in order, the kept ones among them, and the tail.
  MlaRows closed_rows() const;
  MlaRows kept_rows() const;
  MlaRows tail_rows() const;
  const RowIndex& index() const { return index_; }
  const CalibrationState& calibration() const { return calibrator_.state(); }
  std::span<const float> gates() const { return calibrator_.gates(); }

  // Stores n rows as the newest. Closes blocks only when the tail has no room left. Throws
  // Error{kTooLong} beyond the capacity.
  void append(const void* rows, int64_t n);
  // One row, where the tail has room (it has after maintain()): allocates and closes nothing.
  void append_newest(const std::byte* row) noexcept;
  // Closes the tail as a block of its own; false if it has fewer than kMinClosedRows rows.
  bool close_now();
  // Work that is due between steps: closes full blocks, then does one slice of calibration, about
  // max_rows rows of it. False: nothing was left to do.
  bool maintain(int64_t max_rows = 4096);
  // Takes back the newest rows down to n_rows, none of them closed, and what was observed after
  // n_observed steps: for a step that failed.
  void take_back(int64_t n_rows, int64_t n_observed);
  int64_t n_observed() const { return calibrator_.n_observed(); }

  RecallState state() const;
  // Back to a state of this cache: its rows are still here, whatever was appended since.
  void rewind(const RecallState& state);
  // An empty cache becomes one of that state; rows (state.n_rows(), row_dim). Throws Error:
  // kInvalidArgument for a state that does not fit (state_problem), kTooLong, kIo.
  void restore(const RecallState& state, const void* rows);

  // Of an archive on disk: pages that attending to everything brought in leave this process's
  // memory.
  void drop_archive_pages() noexcept { store_.drop_resident(); }
  // Empties the cache for another sequence; nothing of this one can be seen by the next.
  void clear();

  void set_recall(bool on) { options_.recall = on; }
  // A calibration is under way or waits for queries.
  bool calibrating() const { return !calibrator_.done(); }
  // An audit found less than was promised: calibrates anew from the queries that come.
  void target_missed() { calibrator_.target_missed(index_); }
  // For the decode step: the step's queries with their best kept scores and kept entropies.
  void observe(const float* queries, const float* best_kept, const float* entropy) noexcept {
    calibrator_.observe(queries, best_kept, entropy);
  }

 private:
  void close(int64_t n);
  void set_state(const RecallState& state);
  void mark_kept();
  void rank_rows(int64_t first, int64_t n);
  void repartition();
  ArchiveView archive() const;

  MlaKernels kernels_;
  MlaShape shape_;
  RowType type_;
  int64_t capacity_;
  RecallOptions options_;
  size_t row_bytes_;
  int64_t tail_capacity_;
  int64_t n_tail_ = 0;
  RowStore store_;
  Mapping tail_;
  Mapping kept_copy_;  // the kept rows in order: a decode step reads them in one sweep
  std::vector<uint32_t> kept_;
  std::vector<uint64_t> kept_bits_;
  std::vector<float> sigma_;
  std::optional<LowPass> low_pass_;  // of a block of the usual length
  RowIndex index_;
  Calibrator calibrator_;
};

// What of the options does not fit rows of this shape, or each other; empty if all does.
std::optional<std::string> options_problem(const MlaShape& shape, const RecallOptions& options);
// What of a state, from a file say, does not fit caches of this shape with these options; empty if
// all does.
std::optional<std::string> state_problem(const RecallState& state, const MlaShape& shape,
                                         const RecallOptions& options);

}  // namespace ctxzip
