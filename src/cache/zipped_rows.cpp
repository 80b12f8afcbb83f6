#include "cache/zipped_rows.h"

#include <cstring>
#include <span>
#include <utility>

#include "cache/quantised_rows.h"
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

// All heads of a layer, keys then values, in the type of rows.shape.
class LayerGatherer {
 public:
  LayerGatherer(const DenseCache& full, const ZippedRows& rows) : full_(full), rows_(rows) {}

  Mapping gather(int64_t layer) {
    Mapping block(rows_.layer_key_bytes(layer) + rows_.layer_value_bytes(layer));
    if (block.data() == nullptr) return block;
    std::byte* to = block.data();
    for (int64_t head = 0; head < rows_.shape.n_kv_head; ++head) {
      store(full_.k_rows(layer, head), layer, head, quantise_keys, to);
      to += stored_key_bytes(rows_.shape, rows_.n_rows(layer, head));
    }
    for (int64_t head = 0; head < rows_.shape.n_kv_head && !rows_.shape.value_in_key; ++head) {
      store(full_.v_rows(layer, head), layer, head, quantise_values, to);
      to += stored_value_bytes(rows_.shape, rows_.n_rows(layer, head));
    }
    return block;
  }

 private:
  using Quantise = void (*)(const QuantisedLayout&, const DenseRows&, std::byte*);

  void store(const std::byte* head_rows, int64_t layer, int64_t head, Quantise quantise,
             std::byte* to) {
    const size_t row_size = full_.shape().row_size();
    const std::vector<uint32_t>& kept = rows_.kept.at(layer, head);
    if (!is_quantised(rows_.shape.row_type)) {
      gather_head(head_rows, rows_.n_prefix, kept, row_size, to);
      return;
    }
    const int64_t n_rows = rows_.n_rows(layer, head);
    dense_.resize(static_cast<size_t>(n_rows) * row_size);
    gather_head(head_rows, rows_.n_prefix, kept, row_size, dense_.data());
    quantise({rows_.shape.row_type, rows_.shape.head_dim},
             {full_.shape().row_type, dense_.data(), n_rows}, to);
  }

  const DenseCache& full_;
  const ZippedRows& rows_;
  std::vector<std::byte> dense_;  // one head before it is quantised
};

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
ZippedRows gather(const DenseCache& full, int64_t n_prefix, KeepSet kept,
                  std::optional<RowType> stored, AfterLayer after_layer) {
  check_keep_set(full, n_prefix, kept);
  ZippedRows rows;
  rows.shape = full.shape();
  rows.shape.row_type = stored.value_or(full.shape().row_type);
  CHECK(rows.shape.row_type == full.shape().row_type ||
        (is_quantised(rows.shape.row_type) && !rows.shape.value_in_key));
  rows.n_prefix = n_prefix;
  rows.kept = std::move(kept);
  index_rows(rows);
  auto blocks = std::make_shared<std::vector<Mapping>>();
  blocks->reserve(static_cast<size_t>(rows.shape.n_layer));
  LayerGatherer gatherer(full, rows);
  for (int64_t layer = 0; layer < rows.shape.n_layer; ++layer) {
    const Mapping& block = blocks->emplace_back(gatherer.gather(layer));
    rows.k_layers.push_back(block.data());
    const bool shared = block.data() == nullptr || rows.shape.value_in_key;
    rows.v_layers.push_back(shared ? block.data() : block.data() + rows.layer_key_bytes(layer));
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

size_t ZippedRows::layer_key_bytes(int64_t layer) const {
  size_t n = 0;
  for (int64_t head = 0; head < shape.n_kv_head; ++head)
    n += stored_key_bytes(shape, n_rows(layer, head));
  return n;
}

size_t ZippedRows::layer_value_bytes(int64_t layer) const {
  size_t n = 0;
  for (int64_t head = 0; head < shape.n_kv_head; ++head)
    n += stored_value_bytes(shape, n_rows(layer, head));
  return n;
}

Segment ZippedRows::segment(int64_t layer, int64_t kv_head) const {
  const int64_t n = n_rows(layer, kv_head);
  if (n == 0) return {};
  const size_t head = head_index(kept, layer, kv_head);
  const auto at = static_cast<size_t>(layer);
  Segment segment = {
      .k = k_layers[at] + k_offset[head], .v = v_layers[at] + v_offset[head], .n_rows = n};
  if (is_quantised(shape.row_type)) segment.quantised = shape.row_type;
  return segment;
}

int64_t ZippedRows::kv_bytes() const {
  size_t n = 0;
  for (int64_t layer = 0; layer < shape.n_layer; ++layer)
    n += layer_key_bytes(layer) + layer_value_bytes(layer);
  return static_cast<int64_t>(n);
}

void index_rows(ZippedRows& rows) {
  rows.k_offset.clear();
  rows.v_offset.clear();
  for (int64_t layer = 0; layer < rows.kept.n_layer; ++layer) {
    size_t k = 0;
    size_t v = 0;
    for (int64_t head = 0; head < rows.kept.n_kv_head; ++head) {
      rows.k_offset.push_back(k);
      rows.v_offset.push_back(rows.shape.value_in_key ? rows.k_offset.back() : v);
      k += stored_key_bytes(rows.shape, rows.n_rows(layer, head));
      v += stored_value_bytes(rows.shape, rows.n_rows(layer, head));
    }
  }
}

ZippedRows compact(DenseCache& full, int64_t n_prefix, KeepSet kept,
                   std::optional<RowType> stored) {
  return gather(full, n_prefix, std::move(kept), stored,
                [&full](int64_t layer) { full.release_layer(layer); });
}

ZippedRows compact_copy(const DenseCache& full, int64_t n_prefix, KeepSet kept,
                        std::optional<RowType> stored) {
  return gather(full, n_prefix, std::move(kept), stored, [](int64_t) {});
}

}  // namespace ctxzip
