// Which stored rows a batch attends to, for every layer and KV head.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cache/dense_cache.h"
#include "cache/zipped_rows.h"
#include "kernels/attention.h"

namespace ctxzip {

// Segments in the order they are attended to. Views only: the stores must outlive the table.
class SegmentTable {
 public:
  explicit SegmentTable(const KvShape& shape) : shape_(shape) {}

  void add(const ZippedRows& rows);
  // Rows [begin, end) of every head.
  void add(const DenseCache& cache, int64_t begin, int64_t end);
  // The rows that compaction would keep, without copying them: prefix, then `kept`.
  void add(const DenseCache& cache, int64_t n_prefix, const KeepSet& kept);

  const KvShape& shape() const { return shape_; }
  int64_t size() const { return static_cast<int64_t>(segments_.size()); }
  const Segment& at(int64_t segment, int64_t layer, int64_t kv_head) const {
    return segments_[static_cast<size_t>(segment)]
                    [static_cast<size_t>(layer * shape_.n_kv_head + kv_head)];
  }

 private:
  template <typename Make>
  void add_each(Make make);

  KvShape shape_;
  std::vector<std::vector<Segment>> segments_;   // (segment, layer * kv_head)
  std::deque<std::vector<uint32_t>> row_lists_;  // what indexed segments point to
};

}  // namespace ctxzip
