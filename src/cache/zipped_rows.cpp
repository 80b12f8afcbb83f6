#include "cache/zipped_rows.h"

#include <cstring>
#include <span>
#include <utility>

#include "core/fail.h"

namespace ctxzip {
namespace {

size_t head_index(const KeepSet& kept, int64_t layer, int64_t kv_head) {
  return static_cast<size_t>(layer * kept.n_kv_head + kv_head);
}

// Copies the listed rows, each run of neighbours at once. Returns the end of what was written.
std::byte* gather_rows(const std::byte* from, std::span<const uint32_t> rows, size_t row_size,
                       std::byte* to) {
  for (size_t first = 0; first < rows.size();) {
    size_t last = first + 1;
    while (last < rows.size() && rows[last] == rows[last - 1] + 1) ++last;
    const size_t n_bytes = (last - first) * row_size;
    std::memcpy(to, from + rows[first] * row_size, n_bytes);
    to += n_bytes;
    first = last;
  }
  return to;
}

// Prefix and kept rows of one head.
std::byte* gather_head(const std::byte* head_rows, int64_t n_prefix, std::span<const uint32_t> kept,
                       size_t row_size, std::byte* to) {
  const size_t prefix_bytes = static_cast<size_t>(n_prefix) * row_size;
  if (prefix_bytes != 0) std::memcpy(to, head_rows, prefix_bytes);
  return gather_rows(head_rows + prefix_bytes, kept, row_size, to + prefix_bytes);
}

Mapping gather_layer(const DenseCache& full, const ZippedRows& rows, int64_t layer) {
  const size_t row_size = rows.shape.row_size();
  Mapping block(2 * static_cast<size_t>(rows.layer_rows(layer)) * row_size);
  std::byte* to = block.data();
  if (to == nullptr) return block;
  for (int64_t head = 0; head < rows.shape.n_kv_head; ++head) {
    to = gather_head(full.k_rows(layer, head), rows.n_prefix, rows.kept.at(layer, head), row_size,
                     to);
  }
  for (int64_t head = 0; head < rows.shape.n_kv_head; ++head) {
    to = gather_head(full.v_rows(layer, head), rows.n_prefix, rows.kept.at(layer, head), row_size,
                     to);
  }
  return block;
}

void check_keep_set(const DenseCache& full, int64_t n_prefix, const KeepSet& kept) {
  const KvShape& shape = full.shape();
  CHECK(kept.n_layer == shape.n_layer && kept.n_kv_head == shape.n_kv_head);
  CHECK(kept.rows.size() == static_cast<size_t>(shape.n_layer * shape.n_kv_head));
  CHECK(n_prefix >= 0 && kept.n_context >= 0 && n_prefix + kept.n_context <= full.n_rows());
  for (const std::vector<uint32_t>& rows : kept.rows) {
    for (size_t n = 1; n < rows.size(); ++n) CHECK(rows[n - 1] < rows[n]);
    CHECK(rows.empty() || rows.back() < kept.n_context);
  }
}

// `after_layer` is called with each layer that has been copied.
template <typename AfterLayer>
ZippedRows gather(const DenseCache& full, int64_t n_prefix, KeepSet kept, AfterLayer after_layer) {
  check_keep_set(full, n_prefix, kept);
  ZippedRows rows;
  rows.shape = full.shape();
  rows.n_prefix = n_prefix;
  rows.kept = std::move(kept);
  index_rows(rows);
  auto blocks = std::make_shared<std::vector<Mapping>>();
  blocks->reserve(static_cast<size_t>(rows.shape.n_layer));
  for (int64_t layer = 0; layer < rows.shape.n_layer; ++layer) {
    const Mapping& block = blocks->emplace_back(gather_layer(full, rows, layer));
    rows.k_layers.push_back(block.data());
    rows.v_layers.push_back(block.data() == nullptr ? nullptr : block.data() + block.size() / 2);
    after_layer(layer);
  }
  rows.storage = std::move(blocks);
  return rows;
}

}  // namespace

int64_t ZippedRows::n_rows(int64_t layer, int64_t kv_head) const {
  return n_prefix + static_cast<int64_t>(kept.at(layer, kv_head).size());
}

int64_t ZippedRows::layer_rows(int64_t layer) const {
  int64_t n = 0;
  for (int64_t head = 0; head < shape.n_kv_head; ++head) n += n_rows(layer, head);
  return n;
}

Segment ZippedRows::segment(int64_t layer, int64_t kv_head) const {
  const int64_t n = n_rows(layer, kv_head);
  if (n == 0) return {};
  const size_t offset =
      static_cast<size_t>(first_row[head_index(kept, layer, kv_head)]) * shape.row_size();
  const auto at = static_cast<size_t>(layer);
  return {.k = k_layers[at] + offset, .v = v_layers[at] + offset, .n_rows = n};
}

int64_t ZippedRows::kv_bytes() const {
  const int64_t n_heads = shape.n_layer * shape.n_kv_head;
  return (n_heads * n_prefix + kept.pairs_kept()) * static_cast<int64_t>(shape.pair_size());
}

void index_rows(ZippedRows& rows) {
  rows.first_row.clear();
  rows.first_row.reserve(rows.kept.rows.size());
  for (int64_t layer = 0; layer < rows.kept.n_layer; ++layer) {
    int64_t next = 0;
    for (int64_t head = 0; head < rows.kept.n_kv_head; ++head) {
      rows.first_row.push_back(next);
      next += rows.n_rows(layer, head);
    }
  }
}

ZippedRows compact(DenseCache& full, int64_t n_prefix, KeepSet kept) {
  return gather(full, n_prefix, std::move(kept),
                [&full](int64_t layer) { full.release_layer(layer); });
}

ZippedRows compact_copy(const DenseCache& full, int64_t n_prefix, KeepSet kept) {
  return gather(full, n_prefix, std::move(kept), [](int64_t) {});
}

}  // namespace ctxzip
