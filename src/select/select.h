// From scores and a budget to the rows that stay. Pure: no ggml, no clock, no files.
#pragma once

#include <cstdint>

#include "cache/keep_set.h"
#include "ctxzip/zip.h"
#include "score/scores.h"

namespace ctxzip {

// Pairs a budget allows: ceil(ratio x total), whole tokens' worth, or what fits `size_bytes` beside
// the prefix. `pair_bytes` covers K and V of one row in one head. Throws Error{kInvalidArgument}
// for budgets out of range (also a size too small for the prefix) and for a quality budget.
int64_t pairs_for_budget(const Budget& budget, int64_t n_layer, int64_t n_kv_head,
                         int64_t n_context, int64_t n_prefix, int64_t pair_bytes);

// Keeps exactly n_keep pairs, 0 <= n_keep <= scores.pairs(). Ties go to the lower (layer, kv_head,
// position). kLayer and kUniform share n_keep evenly over layers or heads, remainders to the first.
// NaN counts as the lowest score.
KeepSet select_pairs(const Scores& scores, int64_t n_keep, Allocation allocation);

// Everything stays.
KeepSet keep_all(int64_t n_layer, int64_t n_kv_head, int64_t n_context);

}  // namespace ctxzip
