// The rows that outlive their chunk while a context is zipped chunk by chunk: ragged, growing, and
// pruned again whenever a later chunk wins some of the budget.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/dense_cache.h"
#include "cache/keep_set.h"
#include "cache/zipped_rows.h"

namespace ctxzip {

class SurvivingRows {
 public:
  // Reserves address space for n_prefix + n_context rows a head; memory follows the rows held.
  // Throws Error{kOutOfMemory}.
  SurvivingRows(const KvShape& shape, int64_t n_prefix, int64_t n_context);

  // Copies rows [0, n_prefix) of `chunk`. Once, before the first merge.
  void add_prefix(const DenseCache& chunk);
  // `kept` (positions of the context) becomes what is held: rows of positions before `begin` must
  // be among those held now, the others are copied from `chunk`, where position `begin` is row
  // `first_row`.
  void merge(const DenseCache& chunk, int64_t first_row, int64_t begin, KeepSet kept);

  const KvShape& shape() const { return store_.shape(); }
  const KeepSet& kept() const { return kept_; }
  // All rows of a head, prefix first; or the prefix alone.
  Segment segment(int64_t layer, int64_t kv_head) const;
  Segment prefix(int64_t layer, int64_t kv_head) const;
  // Bytes of K and V rows held.
  int64_t kv_bytes() const;

  // Everything as zipped rows; gives each layer's memory back once it is copied.
  ZippedRows take(std::optional<RowType> stored = {});

 private:
  int64_t n_prefix_;
  DenseCache store_;
  KeepSet kept_;
};

}  // namespace ctxzip
