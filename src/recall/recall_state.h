// What a RecallCache is at some moment, without its rows and without index entries, which follow
// from rows and basis: to turn back to, and to write to a file.
#pragma once

#include <cstdint>
#include <vector>

#include "ctxzip/recall.h"

namespace ctxzip {

// What a calibration does next. Numbers are part of files.
enum class CalibrationStage : uint8_t { kObserve = 0, kFit = 1, kRebuild = 2, kDone = 3 };

struct CalibrationRecord {
  CalibrationState state;
  std::vector<float> gates;  // (head)
  CalibrationStage stage = CalibrationStage::kObserve;
  bool completed = false;     // the sketch had too few queries
  int64_t n_labelled = 0;     // observed steps that were compared with the whole archive
  int64_t labelled_rows = 0;  // of the step after those
  int64_t n_rebuilt = 0;      // entries that were made anew so far
  // Observed steps; none once the calibration is done.
  std::vector<float> queries;        // (step, head, row_dim)
  std::vector<float> best_kept;      // (step, head), like those below
  std::vector<float> entropy;        // nats
  std::vector<float> best_archived;  // -inf: not seen
  std::vector<uint32_t> target;      // the row of it

  bool operator==(const CalibrationRecord&) const = default;
};

struct RecallState {
  int64_t n_closed = 0;
  int64_t n_tail = 0;
  std::vector<float> sigma;    // (closed row)
  std::vector<uint32_t> kept;  // ascending
  std::vector<float> basis;    // (rank, latent)
  CalibrationRecord calibration;

  int64_t n_rows() const { return n_closed + n_tail; }
  bool operator==(const RecallState&) const = default;
};

// What a file says of a context under the policy.
struct RecallContext {
  RecallOptions options;            // archive_path empty
  bool control = false;             // of a model with rotated rows
  std::vector<RecallState> layers;  // of the MLA layers
};

}  // namespace ctxzip
