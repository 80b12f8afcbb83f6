// The dimensions that every store of K and V rows shares.
#pragma once

#include <cstdint>

#include "kernels/row_type.h"

namespace ctxzip {

struct KvShape {
  int64_t n_layer = 0;
  int64_t n_kv_head = 0;
  int64_t head_dim = 0;
  RowType row_type = RowType::kF16;

  size_t row_size() const { return row_bytes(row_type, head_dim); }
  // K and V of one row in one head.
  size_t pair_size() const { return 2 * row_size(); }
  bool operator==(const KvShape&) const = default;
};

}  // namespace ctxzip
