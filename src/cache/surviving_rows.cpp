#include "cache/surviving_rows.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "core/fail.h"

namespace ctxzip {
namespace {

// The positions that a head holds and will hold.
struct Survivors {
  size_t n_prefix;
  size_t row_size;
  int64_t begin;  // positions from here on come from the chunk
  const std::vector<uint32_t>& before;
  const std::vector<uint32_t>& after;

  // Position p of the chunk is its row first + p.
  void merge(std::byte* rows, const std::byte* chunk, int64_t first) const {
    size_t at = 0;  // in `before`
    size_t to = n_prefix;
    for (const uint32_t position : after) {
      if (position < begin) {
        while (at < before.size() && before[at] != position) ++at;
        CHECK(at < before.size());
        const size_t from = n_prefix + at;
        if (from != to) std::memmove(rows + to * row_size, rows + from * row_size, row_size);
      } else {
        const auto from = static_cast<size_t>(first + position);
        std::memcpy(rows + to * row_size, chunk + from * row_size, row_size);
      }
      ++to;
    }
  }
};

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
      if (shape().value_in_key) continue;
      std::memcpy(store_.v_rows(layer, head), chunk.v_rows(layer, head), n_bytes);
    }
  }
}

void SurvivingRows::merge(const DenseCache& chunk, int64_t first_row, int64_t begin, KeepSet kept) {
  CHECK(kept.n_context == kept_.n_context && kept.rows.size() == kept_.rows.size());
  const int64_t first = first_row - begin;
  for (int64_t layer = 0; layer < shape().n_layer; ++layer) {
    for (int64_t head = 0; head < shape().n_kv_head; ++head) {
      const Survivors survivors = {.n_prefix = static_cast<size_t>(n_prefix_),
                                   .row_size = shape().row_size(),
                                   .begin = begin,
                                   .before = kept_.at(layer, head),
                                   .after = kept.at(layer, head)};
      survivors.merge(store_.k_rows(layer, head), chunk.k_rows(layer, head), first);
      if (shape().value_in_key) continue;
      survivors.merge(store_.v_rows(layer, head), chunk.v_rows(layer, head), first);
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
