#include "select/heads.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr int64_t kShortContextShare = 8;

// The first n_first and the last n_last of n rows, which may overlap.
std::vector<uint32_t> ends(int64_t n, int64_t n_first, int64_t n_last) {
  std::vector<uint32_t> rows;
  const int64_t first_end = std::min(n_first, n);
  for (int64_t row = 0; row < first_end; ++row) rows.push_back(static_cast<uint32_t>(row));
  for (int64_t row = std::max(first_end, n - n_last); row < n; ++row) {
    rows.push_back(static_cast<uint32_t>(row));
  }
  return rows;
}

}  // namespace

KeepSet select_heads(const HeadSelection& selection, std::span<const float> head_scores,
                     int64_t n_keep) {
  const int64_t n_heads = selection.n_layer * selection.n_kv_head;
  const int64_t n_context = selection.n_context;
  CHECK(static_cast<int64_t>(head_scores.size()) == n_heads);
  CHECK(n_keep >= 0 && n_keep <= n_heads * n_context);
  int64_t n_first = 0;
  int64_t n_last = 0;
  if (selection.structure == HeadStructure::kDuo) {
    const int64_t most = n_context / kShortContextShare;
    n_first = std::clamp<int64_t>(kDuoSinkTokens - selection.n_prefix, 0, most);
    n_last = std::min(kDuoRecentTokens, most);
  }
  std::vector<size_t> order(head_scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return head_scores[a] > head_scores[b]; });
  KeepSet kept{.n_layer = selection.n_layer,
               .n_kv_head = selection.n_kv_head,
               .n_context = n_context,
               .rows = std::vector<std::vector<uint32_t>>(head_scores.size())};
  const int64_t least = n_first + n_last;
  int64_t spare = n_keep - n_heads * least;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    int64_t n_rows = least;
    if (spare < 0) {
      n_rows = n_keep / n_heads + (static_cast<int64_t>(rank) < n_keep % n_heads ? 1 : 0);
    } else {
      const int64_t more = std::min(spare, n_context - least);
      n_rows += more;
      spare -= more;
    }
    const int64_t first = std::min(n_first, n_rows);
    kept.rows[order[rank]] = ends(n_context, first, n_rows - first);
  }
  return kept;
}

}  // namespace ctxzip
