// From scores and a budget to the rows that stay. Pure: no ggml, no clock, no files.
#pragma once

#include <cstdint>

#include "cache/keep_set.h"
#include "ctxzip/zip.h"
#include "score/scores.h"

namespace ctxzip {

// What a budget is measured against.
struct ContextSize {
  int64_t n_layer = 0;  // that can be evicted
  int64_t n_kv_head = 0;
  int64_t n_context = 0;
  int64_t n_prefix = 0;
  int64_t pair_bytes = 0;    // K and V of one row in one head
  int64_t window_bytes = 0;  // of sliding-window layers, which are kept whatever the budget
};

// Pairs a budget allows: ceil(ratio x total), whole tokens' worth, or what fits `size_bytes` beside
// prefix and windows. Throws Error{kInvalidArgument} for budgets out of range (also a size too
// small for what is kept anyway) and for a quality budget.
int64_t pairs_for_budget(const Budget& budget, const ContextSize& size);

// Keeps exactly n_keep pairs, 0 <= n_keep <= scores.pairs(). Ties go to the lower (layer, kv_head,
// position). kLayer and kUniform share n_keep evenly over layers or heads, remainders to the first.
// NaN counts as the lowest score.
KeepSet select_pairs(const Scores& scores, int64_t n_keep, Allocation allocation);

// Everything stays.
KeepSet keep_all(int64_t n_layer, int64_t n_kv_head, int64_t n_context);

}  // namespace ctxzip
