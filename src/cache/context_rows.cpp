#include "cache/context_rows.h"

#include <algorithm>

#include "core/fail.h"

namespace ctxzip {

int64_t frozen_window_rows(const LayerMap& layers, int64_t n_positions) {
  return std::min(layers.window_rows(), n_positions);
}

ZippedRows freeze_window(const DenseCache& window, const LayerMap& layers, int64_t n_positions) {
  const KvShape& shape = window.shape();
  CHECK(shape.n_layer == layers.n_local());
  const int64_t n_rows = frozen_window_rows(layers, n_positions);
  CHECK(n_rows <= window.n_rows());
  KeepSet newest{.n_layer = shape.n_layer,
                 .n_kv_head = shape.n_kv_head,
                 .n_context = window.n_rows(),
                 .rows = {}};
  std::vector<uint32_t> rows;
  for (int64_t row = window.n_rows() - n_rows; row < window.n_rows(); ++row)
    rows.push_back(static_cast<uint32_t>(row));
  newest.rows.assign(static_cast<size_t>(shape.n_layer * shape.n_kv_head), rows);
  ZippedRows frozen = compact_copy(window, 0, std::move(newest));
  frozen.n_prefix = n_rows;
  frozen.kept = keep_nothing(shape.n_layer, shape.n_kv_head);
  index_rows(frozen);
  return frozen;
}

}  // namespace ctxzip
