// What the recall tier finds of captured rows for captured queries: one layer at a time, the
// queries being those of the full cache.
#pragma once

#include <cstdint>
#include <span>

#include "eval/query_capture.h"
#include "recall/recall_options.h"

namespace ctxzip::eval {

// Sums over measured steps; a query is one head in one step.
struct RecallCounts {
  int64_t steps = 0;
  int64_t queries = 0;
  int64_t hard = 0;   // queries whose best row of all is archived
  int64_t found = 0;  // of these: it was fetched
  int64_t fetched_rows = 0;
  int64_t triggered = 0;  // steps that fetched
  int64_t bytes_read = 0;
  int64_t bytes_dense = 0;  // what reading all rows would have read
  double missed_mass = 0;   // softmax mass that was not attended to, summed over queries
  bool holds = false;       // the calibration's promise was valid for all of them
};

// Closes rows [0, n_text), decodes the tokens after them to calibrate up to `first_measured`, and
// measures the rest. Throws Error{kInvalidArgument} for options that do not fit.
RecallCounts count_recall(const MlaShape& shape, const LayerCapture& layer, int64_t n_text,
                          int64_t first_measured, const RecallOptions& options);

}  // namespace ctxzip::eval
