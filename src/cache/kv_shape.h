// The dimensions that every store of K and V rows shares.
#pragma once

#include <cstdint>

#include "kernels/quantised_layout.h"
#include "kernels/row_type.h"

namespace ctxzip {

struct KvShape {
  int64_t n_layer = 0;
  int64_t n_kv_head = 0;
  int64_t head_dim = 0;
  RowType row_type = RowType::kF16;
  // Latent attention: V is the first part of each K row, which is stored once and not quantised.
  bool value_in_key = false;

  // Of types that are stored row by row.
  size_t row_size() const { return row_bytes(row_type, head_dim); }
  // K and V of one row in one head.
  size_t pair_size() const { return (value_in_key ? 1 : 2) * row_size(); }
  bool operator==(const KvShape&) const = default;
};

// Bytes that n_rows of one head take, of any type.
inline size_t stored_key_bytes(const KvShape& shape, int64_t n_rows) {
  if (!is_quantised(shape.row_type)) return static_cast<size_t>(n_rows) * shape.row_size();
  return static_cast<size_t>(QuantisedLayout{shape.row_type, shape.head_dim}.key_bytes(n_rows));
}
inline size_t stored_value_bytes(const KvShape& shape, int64_t n_rows) {
  if (shape.value_in_key) return 0;
  if (!is_quantised(shape.row_type)) return static_cast<size_t>(n_rows) * shape.row_size();
  return static_cast<size_t>(QuantisedLayout{shape.row_type, shape.head_dim}.value_bytes(n_rows));
}

}  // namespace ctxzip
