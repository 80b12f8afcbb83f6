// Dense K and V rows, (layer, kv_head, row, head_dim), growing at the end: the full cache of a
// prefill, the tail of a session, the scratch of a reconstruction pass.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/kv_shape.h"
#include "core/memory.h"
#include "kernels/attention.h"

namespace ctxzip {

class DenseCache {
 public:
  // Reserves address space for `capacity` rows, one mapping per layer; memory follows the rows that
  // are written. Throws Error{kOutOfMemory}.
  DenseCache(const KvShape& shape, int64_t capacity);

  const KvShape& shape() const { return shape_; }
  int64_t capacity() const { return capacity_; }
  int64_t n_rows() const { return n_rows_; }
  // Of the rows that are there.
  int64_t kv_bytes() const {
    return n_rows_ * shape_.n_layer * shape_.n_kv_head * static_cast<int64_t>(shape_.pair_size());
  }

  // Start of a head's rows (row, head_dim); null once the layer is released. V rows are the K rows
  // where values lie in keys.
  std::byte* k_rows(int64_t layer, int64_t kv_head) const;
  std::byte* v_rows(int64_t layer, int64_t kv_head) const;

  // Rows [begin, end) of one head as an attention segment.
  Segment segment(int64_t layer, int64_t kv_head, int64_t begin, int64_t end) const;

  // After all layers' rows [n_rows, n_rows + n) were written.
  void extend(int64_t n);
  // Drops rows from `n_rows` on and gives their whole pages back.
  void truncate(int64_t n_rows);
  // Drops the oldest n rows; the others move to the front.
  void drop_front(int64_t n);
  // Gives back the whole pages of rows [0, end), which must not be read again.
  void forget(int64_t end);
  // Gives one layer's memory back for good.
  void release_layer(int64_t layer);

 private:
  std::byte* rows(int64_t layer, int64_t slot) const;
  void discard(int64_t begin, int64_t end);

  KvShape shape_;
  int64_t capacity_;
  int64_t n_rows_ = 0;
  std::vector<Mapping> layers_;
};

}  // namespace ctxzip
