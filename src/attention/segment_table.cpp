#include "attention/segment_table.h"

#include "core/fail.h"

namespace ctxzip {

template <typename Make>
void SegmentTable::add_each(LayerKind kind, Make make) {
  std::vector<Segment> heads;
  heads.reserve(static_cast<size_t>(layers_.n_layer() * global_.n_kv_head));
  for (int64_t layer = 0; layer < layers_.n_layer(); ++layer) {
    for (int64_t kv_head = 0; kv_head < global_.n_kv_head; ++kv_head) {
      const bool stored = layers_.kind(layer) == kind;
      heads.push_back(stored ? make(layers_.index(layer), kv_head) : Segment());
    }
  }
  segments_.push_back(std::move(heads));
}

void SegmentTable::add(const ZippedRows& rows) {
  KvShape dense = rows.shape;
  if (is_quantised(dense.row_type)) dense.row_type = global_.row_type;
  CHECK(dense == global_);
  add_each(LayerKind::kGlobal,
           [&](int64_t index, int64_t kv_head) { return rows.segment(index, kv_head); });
}

void SegmentTable::add(const SurvivingRows& rows) {
  CHECK(rows.shape() == global_);
  add_each(LayerKind::kGlobal,
           [&](int64_t index, int64_t kv_head) { return rows.segment(index, kv_head); });
}

void SegmentTable::add_prefix(const SurvivingRows& rows) {
  CHECK(rows.shape() == global_);
  add_each(LayerKind::kGlobal,
           [&](int64_t index, int64_t kv_head) { return rows.prefix(index, kv_head); });
}

void SegmentTable::add_window(const ZippedRows& rows) {
  if (layers_.n_local() == 0) return;
  CHECK(rows.shape.n_layer == layers_.n_local());
  add_each(LayerKind::kLocal,
           [&](int64_t index, int64_t kv_head) { return rows.segment(index, kv_head); });
}

void SegmentTable::add_window(const FrozenLayers& frozen) {
  add_window(frozen.window);
  if (layers_.n_recurrent() > 0) states_ = &frozen.states;
}

void SegmentTable::add(const ContextRows& rows) {
  add(rows.global);
  add_window(rows.local);
  if (layers_.n_recurrent() > 0) states_ = &rows.states;
}

void SegmentTable::add(const DenseCache& cache, int64_t begin, int64_t end) {
  CHECK(cache.shape() == global_);
  add_each(LayerKind::kGlobal, [&](int64_t index, int64_t kv_head) {
    return cache.segment(index, kv_head, begin, end);
  });
}

void SegmentTable::add(const DenseCache& cache, int64_t n_prefix, const KeepSet& kept) {
  CHECK(cache.shape() == global_);
  add_each(LayerKind::kGlobal, [&](int64_t index, int64_t kv_head) {
    std::vector<uint32_t>& list = row_lists_.emplace_back();
    const std::vector<uint32_t>& rows = kept.at(index, kv_head);
    list.reserve(static_cast<size_t>(n_prefix) + rows.size());
    for (int64_t row = 0; row < n_prefix; ++row) list.push_back(static_cast<uint32_t>(row));
    for (const uint32_t row : rows) list.push_back(row + static_cast<uint32_t>(n_prefix));
    Segment segment = cache.segment(index, kv_head, 0, cache.n_rows());
    segment.index = list.data();
    segment.n_rows = static_cast<int64_t>(list.size());
    return segment;
  });
}

}  // namespace ctxzip
