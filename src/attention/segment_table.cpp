#include "attention/segment_table.h"

#include "core/fail.h"

namespace ctxzip {

template <typename Make>
void SegmentTable::add_each(Make make) {
  std::vector<Segment> heads;
  heads.reserve(static_cast<size_t>(shape_.n_layer * shape_.n_kv_head));
  for (int64_t layer = 0; layer < shape_.n_layer; ++layer) {
    for (int64_t kv_head = 0; kv_head < shape_.n_kv_head; ++kv_head)
      heads.push_back(make(layer, kv_head));
  }
  segments_.push_back(std::move(heads));
}

void SegmentTable::add(const ZippedRows& rows) {
  CHECK(rows.shape == shape_);
  add_each([&](int64_t layer, int64_t kv_head) { return rows.segment(layer, kv_head); });
}

void SegmentTable::add(const DenseCache& cache, int64_t begin, int64_t end) {
  CHECK(cache.shape() == shape_);
  add_each(
      [&](int64_t layer, int64_t kv_head) { return cache.segment(layer, kv_head, begin, end); });
}

void SegmentTable::add(const DenseCache& cache, int64_t n_prefix, const KeepSet& kept) {
  CHECK(cache.shape() == shape_);
  add_each([&](int64_t layer, int64_t kv_head) {
    std::vector<uint32_t>& list = row_lists_.emplace_back();
    const std::vector<uint32_t>& rows = kept.at(layer, kv_head);
    list.reserve(static_cast<size_t>(n_prefix) + rows.size());
    for (int64_t row = 0; row < n_prefix; ++row) list.push_back(static_cast<uint32_t>(row));
    for (const uint32_t row : rows) list.push_back(row + static_cast<uint32_t>(n_prefix));
    Segment segment = cache.segment(layer, kv_head, 0, cache.n_rows());
    segment.index = list.data();
    segment.n_rows = static_cast<int64_t>(list.size());
    return segment;
  });
}

}  // namespace ctxzip
