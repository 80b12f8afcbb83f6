// Checking recall against the truth: exact scores of every row, now and then.
#pragma once

#include <cstdint>

#include "recall/decode_step.h"
#include "recall/recall_cache.h"

namespace ctxzip {

struct AuditCounts {
  int64_t queries = 0;  // heads whose best row of all was archived
  int64_t found = 0;    // of these: the row was attended to
};

// The last step of a cache that did not change since; queries (head, row_dim), unscaled. Reads all
// closed rows and allocates.
AuditCounts audit_step(const RecallCache& cache, const DecodeStep& step, const float* queries);

// Confidence limits of a proportion (Clopper and Pearson, 1934): found of n, at 1 - error, exact.
struct ProportionLimits {
  double lower = 0;
  double upper = 1;
};
ProportionLimits clopper_pearson(int64_t found, int64_t n, double error = 0.05);

// The fewest queries, all of them found, whose lower limit reaches `target`.
int64_t audits_to_pass(double target, double error = 0.05);

}  // namespace ctxzip
