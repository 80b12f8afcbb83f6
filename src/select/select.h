// From scores and a budget to the rows that stay. Pure: no ggml, no clock, no files.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cache/keep_set.h"
#include "cache/kv_shape.h"
#include "ctxzip/zip.h"
#include "score/budget_rule.h"
#include "score/scores.h"

namespace ctxzip {

// What a budget is measured against.
struct ContextSize {
  KvShape stored;  // of the layers that can be evicted, in the type that kept rows are stored as
  int64_t n_context = 0;
  int64_t n_prefix = 0;
  int64_t window_bytes = 0;  // of sliding-window layers, which are kept whatever the budget

  int64_t heads() const { return stored.n_layer * stored.n_kv_head; }
};

// Pairs a budget allows: ceil(ratio x total), whole tokens' worth, or what fits `size_bytes` beside
// prefix and windows if no padding is needed. Throws Error{kInvalidArgument} for budgets out of
// range (also a size that holds no pair) and for a quality budget.
int64_t pairs_for_budget(const Budget& budget, const ContextSize& size);

// Keeps exactly n_keep pairs, 0 <= n_keep <= scores.pairs(). Ties go to the lower (layer, kv_head,
// position). kLayer and kUniform share n_keep evenly over layers or heads, remainders to the first;
// `rule` says what kNative is and may add to it. NaN counts as the lowest score.
KeepSet select_pairs(const Scores& scores, int64_t n_keep, Allocation allocation,
                     const BudgetRule& rule = {});

// Pairs of each layer when n_keep of all pairs are shared as `rule`'s pyramid; they sum to n_keep
// exactly.
std::vector<int64_t> pyramid_budgets(int64_t n_keep, int64_t n_layer, int64_t n_kv_head,
                                     int64_t n_context, const BudgetRule& rule);

// select(n_keep), with as many pairs fewer as the stored rows, padding included, exceed a size
// budget. `budget` is one that pairs_for_budget accepts; select(n) keeps exactly n pairs.
KeepSet select_within(const std::function<KeepSet(int64_t)>& select, int64_t n_keep,
                      const Budget& budget, const ContextSize& size);

// Everything stays.
KeepSet keep_all(int64_t n_layer, int64_t n_kv_head, int64_t n_context);

}  // namespace ctxzip
