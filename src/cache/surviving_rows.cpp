#include "cache/surviving_rows.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "core/fail.h"

namespace ctxzip {
namespace {

void move_row(std::byte* rows, size_t row_size, size_t from, size_t to) {
  if (from != to) std::memmove(rows + to * row_size, rows + from * row_size, row_size);
}

}  // namespace

SurvivingRows::SurvivingRows(const KvShape& shape, int64_t n_prefix, int64_t n_context)
    : n_prefix_(n_prefix),
      store_(shape, n_prefix + n_context),
      kept_(keep_nothing(shape.n_layer, shape.n_kv_head)) {
  kept_.n_context = n_context;
  store_.extend(n_prefix + n_context);
}

void SurvivingRows::add_prefix(const DenseCache& chunk) {
  CHECK(chunk.shape() == shape() && kept_.pairs_kept() == 0);
  const size_t n_bytes = static_cast<size_t>(n_prefix_) * shape().row_size();
  if (n_bytes == 0) return;
  for (int64_t layer = 0; layer < shape().n_layer; ++layer) {
    for (int64_t head = 0; head < shape().n_kv_head; ++head) {
      std::memcpy(store_.k_rows(layer, head), chunk.k_rows(layer, head), n_bytes);
      std::memcpy(store_.v_rows(layer, head), chunk.v_rows(layer, head), n_bytes);
    }
  }
}

void SurvivingRows::merge(const DenseCache& chunk, int64_t first_row, int64_t begin, KeepSet kept) {
  CHECK(kept.n_context == kept_.n_context && kept.rows.size() == kept_.rows.size());
  const size_t row_size = shape().row_size();
  const auto n_prefix = static_cast<size_t>(n_prefix_);
  for (int64_t layer = 0; layer < shape().n_layer; ++layer) {
    for (int64_t head = 0; head < shape().n_kv_head; ++head) {
      const std::vector<uint32_t>& before = kept_.at(layer, head);
      std::byte* k = store_.k_rows(layer, head);
      std::byte* v = store_.v_rows(layer, head);
      size_t at = 0;  // in `before`
      size_t to = n_prefix;
      for (const uint32_t position : kept.at(layer, head)) {
        if (position < begin) {
          while (at < before.size() && before[at] != position) ++at;
          CHECK(at < before.size());
          move_row(k, row_size, n_prefix + at, to);
          move_row(v, row_size, n_prefix + at, to);
        } else {
          const auto row = static_cast<size_t>(first_row + position - begin);
          std::memcpy(k + to * row_size, chunk.k_rows(layer, head) + row * row_size, row_size);
          std::memcpy(v + to * row_size, chunk.v_rows(layer, head) + row * row_size, row_size);
        }
        ++to;
      }
    }
  }
  kept_ = std::move(kept);
}

Segment SurvivingRows::segment(int64_t layer, int64_t kv_head) const {
  const auto n_kept = static_cast<int64_t>(kept_.at(layer, kv_head).size());
  return store_.segment(layer, kv_head, 0, n_prefix_ + n_kept);
}

Segment SurvivingRows::prefix(int64_t layer, int64_t kv_head) const {
  return store_.segment(layer, kv_head, 0, n_prefix_);
}

int64_t SurvivingRows::kv_bytes() const {
  const int64_t heads = shape().n_layer * shape().n_kv_head;
  return (heads * n_prefix_ + kept_.pairs_kept()) * static_cast<int64_t>(shape().pair_size());
}

ZippedRows SurvivingRows::take(std::optional<RowType> stored) {
  KeepSet held = kept_;
  for (std::vector<uint32_t>& rows : held.rows) std::iota(rows.begin(), rows.end(), 0u);
  ZippedRows rows = compact(store_, n_prefix_, std::move(held), stored);
  rows.kept = std::move(kept_);
  return rows;
}

}  // namespace ctxzip
