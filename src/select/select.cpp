#include "select/select.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/fail.h"

namespace ctxzip {
namespace {

// Marks the n_keep best of pairs [begin, end) of the flattened scores, the last n_recent of these
// pairs among them.
void mark_best(const Scores& scores, int64_t begin, int64_t end, int64_t n_keep, int64_t n_recent,
               std::vector<char>& kept) {
  std::fill_n(kept.begin() + (end - n_recent), n_recent, 1);
  end -= n_recent;
  n_keep -= n_recent;
  std::vector<int64_t> order(static_cast<size_t>(end - begin));
  std::iota(order.begin(), order.end(), begin);
  const auto value = [&](int64_t pair) {
    const float score = scores.values[static_cast<size_t>(pair)];
    return std::isnan(score) ? -INFINITY : score;
  };
  const auto better = [&](int64_t a, int64_t b) {
    const float score_a = value(a);
    const float score_b = value(b);
    return score_a != score_b ? score_a > score_b : a < b;
  };
  if (n_keep < end - begin)
    std::nth_element(order.begin(), order.begin() + n_keep, order.end(), better);
  for (int64_t rank = 0; rank < n_keep; ++rank)
    kept[static_cast<size_t>(order[static_cast<size_t>(rank)])] = 1;
}

KeepSet collect(const Scores& scores, const std::vector<char>& kept) {
  KeepSet set{.n_layer = scores.n_layer,
              .n_kv_head = scores.n_kv_head,
              .n_context = scores.n_context,
              .rows = {}};
  set.rows.resize(static_cast<size_t>(scores.n_layer * scores.n_kv_head));
  size_t pair = 0;
  for (std::vector<uint32_t>& rows : set.rows) {
    for (int64_t row = 0; row < scores.n_context; ++row, ++pair) {
      if (kept[pair] != 0) rows.push_back(static_cast<uint32_t>(row));
    }
    rows.shrink_to_fit();
  }
  return set;
}

int64_t head_bytes(const KvShape& stored, int64_t n_rows) {
  return static_cast<int64_t>(stored_key_bytes(stored, n_rows) +
                              stored_value_bytes(stored, n_rows));
}

// Of quantised rows with their share of scales, the padding of a head's last strip left out.
int64_t pair_bytes(const KvShape& stored) {
  return is_quantised(stored.row_type) ? head_bytes(stored, kGroupRows) / kGroupRows
                                       : head_bytes(stored, 1);
}

int64_t total_bytes(const KeepSet& kept, const ContextSize& size) {
  int64_t n = size.window_bytes;
  for (const std::vector<uint32_t>& rows : kept.rows)
    n += head_bytes(size.stored, size.n_prefix + static_cast<int64_t>(rows.size()));
  return n;
}

int64_t pairs_for_size(int64_t size_bytes, const ContextSize& size) {
  const int64_t least = size.window_bytes +
                        (size.heads() - 1) * head_bytes(size.stored, size.n_prefix) +
                        head_bytes(size.stored, size.n_prefix + 1);
  if (size_bytes < least) {
    fail(ErrorKind::kInvalidArgument,
         "a size of {} bytes is too small: the protected prefix of {} tokens{} and one pair take "
         "{} bytes",
         size_bytes, size.n_prefix,
         size.window_bytes > 0 ? ", the layers with a sliding window" : "", least);
  }
  // Pairs may fill the padding after a prefix: select_within takes back what is too much.
  const int64_t n_pairs =
      (size_bytes - size.window_bytes) / pair_bytes(size.stored) - size.heads() * size.n_prefix;
  return std::clamp<int64_t>(n_pairs, 1, size.heads() * size.n_context);
}

// Groups of heads whose pairs compete.
int64_t parts_of(const Scores& scores, Allocation allocation) {
  if (allocation == Allocation::kGlobal) return 1;
  if (allocation == Allocation::kLayer) return scores.n_layer;
  return scores.n_layer * scores.n_kv_head;
}

}  // namespace

int64_t pairs_for_budget(const Budget& budget, const ContextSize& size) {
  const int64_t total = size.heads() * size.n_context;
  if (budget.keep_tokens) {
    if (*budget.keep_tokens < 1) {
      fail(ErrorKind::kInvalidArgument, "a budget of {} tokens: expected at least 1",
           *budget.keep_tokens);
    }
    return std::min(*budget.keep_tokens, size.n_context) * size.heads();
  }
  if (budget.size_bytes) return pairs_for_size(*budget.size_bytes, size);
  if (budget.quality) fail(ErrorKind::kInvalidArgument, "a quality budget needs a measured search");
  const double ratio = budget.ratio.value_or(0.3);
  if (!(ratio > 0 && ratio <= 1)) {
    fail(ErrorKind::kInvalidArgument, "a ratio of {}: expected more than 0 and at most 1", ratio);
  }
  // 0.3 is a little more than 3/10 in binary: without the margin 0.3 of 10 pairs would be 4.
  const double wanted = std::ceil(ratio * static_cast<double>(total) * (1 - 1e-12));
  return std::clamp<int64_t>(static_cast<int64_t>(wanted), 1, total);
}

std::vector<int64_t> pyramid_budgets(int64_t n_keep, int64_t n_layer, int64_t n_kv_head,
                                     int64_t n_context, const BudgetRule& rule) {
  if (n_layer == 1) return {n_keep};
  // In rows of each of a layer's heads; `window` of them come first everywhere.
  const double average = static_cast<double>(n_keep) / static_cast<double>(n_layer * n_kv_head);
  const double window = std::min(average, static_cast<double>(std::min(rule.window, n_context)));
  const double base = average - window;
  const double most = static_cast<double>(n_context) - window;
  const double first = std::min(most, base * (2 - 1 / rule.pyramid_beta));
  const double step = 2 * (first - base) / static_cast<double>(n_layer - 1);
  std::vector<int64_t> budgets;
  double sum = 0;
  int64_t given = 0;
  for (int64_t layer = 0; layer < n_layer; ++layer) {
    const double rows = window + first - static_cast<double>(layer) * step;
    sum += rows * static_cast<double>(n_kv_head);
    const int64_t until = layer == n_layer - 1 ? n_keep : std::llround(sum);
    const int64_t budget = std::clamp<int64_t>(until - given, 0, n_kv_head * n_context);
    budgets.push_back(budget);
    given += budget;
  }
  CHECK(given == n_keep);
  return budgets;
}

KeepSet select_pairs(const Scores& scores, int64_t n_keep, Allocation allocation,
                     const BudgetRule& rule) {
  CHECK(n_keep >= 0 && n_keep <= scores.pairs());
  CHECK(static_cast<int64_t>(scores.values.size()) == scores.pairs());
  const bool native = allocation == Allocation::kNative;
  if (native) allocation = rule.native;
  CHECK(allocation != Allocation::kNative);
  std::vector<int64_t> budgets = {n_keep};
  if (rule.pyramid_beta > 0) {
    budgets = pyramid_budgets(n_keep, scores.n_layer, scores.n_kv_head, scores.n_context, rule);
  }
  const auto n_budgets = static_cast<int64_t>(budgets.size());
  const int64_t n_parts = parts_of(scores, allocation);
  const int64_t parts_per_budget = std::max<int64_t>(1, n_parts / n_budgets);
  const int64_t part_size = scores.pairs() / (n_budgets * parts_per_budget);
  std::vector<char> kept(scores.values.size());
  for (int64_t part = 0; part < n_budgets * parts_per_budget; ++part) {
    const int64_t budget = budgets[static_cast<size_t>(part / parts_per_budget)];
    const int64_t place = part % parts_per_budget;
    const int64_t share = budget / parts_per_budget + (place < budget % parts_per_budget ? 1 : 0);
    const auto n_recent = static_cast<int64_t>(
        native ? std::floor(rule.recent_share * static_cast<double>(share)) : 0);
    mark_best(scores, part * part_size, (part + 1) * part_size, share, n_recent, kept);
  }
  return collect(scores, kept);
}

KeepSet select_within(const std::function<KeepSet(int64_t)>& select, int64_t n_keep,
                      const Budget& budget, const ContextSize& size) {
  KeepSet kept = select(n_keep);
  if (!budget.size_bytes) return kept;
  for (int64_t excess; n_keep > 1 && (excess = total_bytes(kept, size) - *budget.size_bytes) > 0;) {
    n_keep = std::max<int64_t>(1, n_keep - 1 - excess / pair_bytes(size.stored));
    kept = select(n_keep);
  }
  return kept;
}

KeepSet keep_all(int64_t n_layer, int64_t n_kv_head, int64_t n_context) {
  KeepSet set{.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .rows = {}};
  std::vector<uint32_t> all(static_cast<size_t>(n_context));
  std::iota(all.begin(), all.end(), 0u);
  set.rows.assign(static_cast<size_t>(n_layer * n_kv_head), all);
  return set;
}

}  // namespace ctxzip
