// Which context rows survive: the output of selection, the input of compaction.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

namespace ctxzip {

// For each (layer, kv_head) the ascending context rows kept, counted from the end of the prefix.
struct KeepSet {
  int64_t n_layer = 0;
  int64_t n_kv_head = 0;
  int64_t n_context = 0;
  std::vector<std::vector<uint32_t>> rows;  // (layer, kv_head)

  const std::vector<uint32_t>& at(int64_t layer, int64_t kv_head) const {
    return rows[static_cast<size_t>(layer * n_kv_head + kv_head)];
  }
  int64_t pairs_kept() const {
    int64_t n = 0;
    for (const auto& list : rows) n += static_cast<int64_t>(list.size());
    return n;
  }
  int64_t pairs_total() const { return n_layer * n_kv_head * n_context; }
  bool operator==(const KeepSet&) const = default;
};

// Pairs that both keep, of sets of one shape.
inline int64_t pairs_shared(const KeepSet& a, const KeepSet& b) {
  int64_t n = 0;
  std::vector<uint32_t> both;
  for (size_t head = 0; head < a.rows.size(); ++head) {
    both.clear();
    std::ranges::set_intersection(a.rows[head], b.rows[head], std::back_inserter(both));
    n += static_cast<int64_t>(both.size());
  }
  return n;
}

// No context, no rows.
inline KeepSet keep_nothing(int64_t n_layer, int64_t n_kv_head) {
  return {.n_layer = n_layer,
          .n_kv_head = n_kv_head,
          .n_context = 0,
          .rows = std::vector<std::vector<uint32_t>>(static_cast<size_t>(n_layer * n_kv_head))};
}

}  // namespace ctxzip
