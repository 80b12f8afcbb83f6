#include "recall/partition.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ctxzip {

int64_t rows_to_keep(int64_t n_closed, double ratio) {
  if (n_closed == 0) return 0;
  return std::max<int64_t>(1, std::llround(ratio * static_cast<double>(n_closed)));
}

std::vector<uint32_t> select_rows(std::span<const float> sigma, const KeepRule& rule) {
  const auto n_closed = static_cast<int64_t>(sigma.size());
  const int64_t first = std::min(rule.n_sinks, n_closed);
  const int64_t last = std::max(first, n_closed - rule.n_recent);
  std::vector<uint32_t> ranked(static_cast<size_t>(last - first));
  std::iota(ranked.begin(), ranked.end(), static_cast<uint32_t>(first));
  const auto n_top = std::min(rows_to_keep(n_closed, rule.ratio), last - first);
  const auto before = [&](uint32_t a, uint32_t b) {
    return sigma[a] != sigma[b] ? sigma[a] > sigma[b] : a < b;
  };
  std::nth_element(ranked.begin(), ranked.begin() + n_top, ranked.end(), before);
  ranked.resize(static_cast<size_t>(n_top));
  for (int64_t row = 0; row < first; ++row) ranked.push_back(static_cast<uint32_t>(row));
  for (int64_t row = last; row < n_closed; ++row) ranked.push_back(static_cast<uint32_t>(row));
  std::sort(ranked.begin(), ranked.end());
  return ranked;
}

}  // namespace ctxzip
