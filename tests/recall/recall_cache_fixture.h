// Caches of tiny rows.
#pragma once

#include <limits>
#include <memory>

#include "recall/recall_cache.h"
#include "recall_fixture.h"

namespace ctxzip::testing {

inline RecallOptions tiny_options() {
  RecallOptions options;
  options.block_rows = 256;
  options.keep_ratio = 1.0 / 16;
  return options;
}

class RecallCacheTest : public RecallTest {
 protected:
  std::unique_ptr<RecallCache> make_cache(const RecallOptions& options, int64_t capacity = 16384,
                                          RowType type = RowType::kF16) {
    return std::make_unique<RecallCache>(tuned_mla_kernels(), kTinyShape, type, capacity, options);
  }

  // Archived rows that score above everything that is attended to anyway, for any head.
  template <typename Value>
  std::vector<uint32_t> winners(const RecallCache& cache, const std::vector<float>& q,
                                const std::vector<Value>& rows) {
    const MlaShape& shape = cache.shape();
    std::vector<bool> wins(static_cast<size_t>(cache.n_closed()));
    const std::vector<int64_t> near = near_rows(cache);
    for (int64_t head = 0; head < shape.n_head; ++head) {
      const auto of = [&](int64_t row) {
        return score(shape, q, head, rows.data() + row * shape.row_dim());
      };
      double best = -std::numeric_limits<double>::infinity();
      for (const int64_t row : near) best = std::max(best, of(row));
      for (int64_t row = 0; row < cache.n_closed(); ++row) {
        if (of(row) > best) wins[static_cast<size_t>(row)] = true;
      }
    }
    for (const uint32_t row : cache.kept()) wins[row] = false;
    std::vector<uint32_t> rows_that_win;
    for (uint32_t row = 0; row < wins.size(); ++row) {
      if (wins[row]) rows_that_win.push_back(row);
    }
    return rows_that_win;
  }
};

}  // namespace ctxzip::testing
