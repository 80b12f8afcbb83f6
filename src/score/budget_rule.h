// What a method says about sharing a budget, beyond the order of its scores.
#pragma once

#include <cstdint>

#include "ctxzip/zip.h"

namespace ctxzip {

struct BudgetRule {
  Allocation native = Allocation::kUniform;  // what Allocation::kNative stands for
  // Above 0: whatever the allocation, the rows of a layer's heads beyond the first `window` fall
  // linearly with depth; the last layer gets 1/pyramid_beta of the average (PyramidKV,
  // arXiv 2406.02069, section 3.2). Heads of a layer compete unless the allocation is uniform.
  double pyramid_beta = 0;
  int64_t window = 0;
  // Of a head's rows this share is its newest, under Allocation::kNative (H2O, arXiv 2306.14048,
  // section 5).
  double recent_share = 0;
};

}  // namespace ctxzip
