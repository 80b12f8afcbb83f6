// The kept rows of a context: immutable, ragged, shared by any number of sessions.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/dense_cache.h"
#include "cache/keep_set.h"
#include "cache/kv_shape.h"

namespace ctxzip {

// Each head holds the n_prefix protected rows, then its kept context rows in ascending order.
struct ZippedRows {
  KvShape shape;  // its row type may be a quantised one
  int64_t n_prefix = 0;
  KeepSet kept;  // where the rows come from; kept.n_context rows were there before

  // (layer): all heads' K (V) rows one head after the other, contiguous; the same block where
  // values lie in keys.
  std::vector<const std::byte*> k_layers;
  std::vector<const std::byte*> v_layers;
  // (layer, kv_head): where the head's rows start in its layer's block, in bytes.
  std::vector<size_t> k_offset;
  std::vector<size_t> v_offset;
  std::shared_ptr<const void> storage;  // keeps the bytes alive: heap pages or a mapped file

  int64_t n_rows(int64_t layer, int64_t kv_head) const;
  int64_t layer_rows(int64_t layer) const;
  size_t layer_key_bytes(int64_t layer) const;
  size_t layer_value_bytes(int64_t layer) const;
  Segment segment(int64_t layer, int64_t kv_head) const;
  int64_t n_positions() const { return n_prefix + kept.n_context; }
  // Bytes of K and V rows, prefix included.
  int64_t kv_bytes() const;
};

// Fills the offsets from shape, `kept` and `n_prefix`.
void index_rows(ZippedRows& rows);

// Copies prefix and kept rows out of `full` layer by layer, releasing each layer of `full` as soon
// as it is copied: at most one layer is held twice. Stores rows as `stored`, or as they are. Throws
// Error{kOutOfMemory}.
ZippedRows compact(DenseCache& full, int64_t n_prefix, KeepSet kept,
                   std::optional<RowType> stored = {});
// The same without consuming `full` (evaluation: several budgets on one prefill).
ZippedRows compact_copy(const DenseCache& full, int64_t n_prefix, KeepSet kept,
                        std::optional<RowType> stored = {});

}  // namespace ctxzip
