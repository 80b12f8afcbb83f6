#include "format/ctz_layout.h"

#include <fmt/format.h>

#include "format/gguf_reader.h"

namespace ctxzip {
namespace {

constexpr int64_t kMaxHeads = 16384;  // n_layer x n_kv_head
constexpr int64_t kMaxHeadDim = 4096;
constexpr uint64_t kMaxPositions = INT32_MAX;
constexpr int64_t kMaxStateSize = int64_t{1} << 28;

}  // namespace

std::optional<std::string> limit_exceeded(const KvShape& shape, const LayerMap& layers,
                                          uint64_t n_positions) {
  if (layers.n_layer() > kMaxLayers) {
    return fmt::format("the model has {} layers, expected 1 to {}", layers.n_layer(), kMaxLayers);
  }
  if (layers.n_global() < 1)
    return std::string("the model has no global layer, expected at least one");
  if (shape.n_kv_head < 1 || shape.n_kv_head > kMaxHeads / layers.n_layer()) {
    return fmt::format("n_kv_head is {}, expected 1 to {} with {} layers", shape.n_kv_head,
                       kMaxHeads / layers.n_layer(), layers.n_layer());
  }
  if (shape.head_dim < 1 || shape.head_dim > kMaxHeadDim) {
    return fmt::format("head_dim is {}, expected 1 to {}", shape.head_dim, kMaxHeadDim);
  }
  if (n_positions > kMaxPositions) {
    return fmt::format("prefix and context have {} tokens, expected at most {}", n_positions,
                       kMaxPositions);
  }
  return std::nullopt;
}

std::optional<std::string> state_size_wrong(const LayerMap& layers, int64_t state_size) {
  const bool any = layers.n_recurrent() > 0;
  if (any ? state_size >= 1 && state_size <= kMaxStateSize : state_size == 0) return std::nullopt;
  return fmt::format(
      "the state size is {} with {} recurrent layers, expected 1 to {}, or 0 without them",
      state_size, layers.n_recurrent(), kMaxStateSize);
}

uint64_t padded_bytes(uint64_t n_bytes) {
  return (n_bytes + kGgufAlignment - 1) / kGgufAlignment * kGgufAlignment;
}

std::vector<TensorSpec> tensor_layout(const KvShape& shape, const LayerMap& layers,
                                      uint64_t n_context, std::span<const LayerSize> sizes) {
  std::vector<TensorSpec> specs;
  specs.reserve(1 + 2 * sizes.size());
  uint64_t offset = 0;
  const auto add = [&](TensorSpec spec) {
    spec.offset = offset;
    offset += padded_bytes(spec.n_bytes);
    specs.push_back(std::move(spec));
  };
  const auto n_global = static_cast<uint64_t>(layers.n_global());
  const auto n_kv_head = static_cast<uint64_t>(shape.n_kv_head);
  const uint64_t stride = bitmap_bytes(n_context);
  add({.name = "kept",
       .type = kTensorI8,
       .ne = {stride, n_kv_head, n_global, 1},
       .n_bytes = stride * n_kv_head * n_global});
  for (size_t layer = 0; layer < sizes.size(); ++layer) {
    const LayerSize& size = sizes[layer];
    if (size.n_state > 0) {
      add({.name = fmt::format("s.{}", layer),
           .type = static_cast<uint32_t>(RowType::kF32),
           .ne = {size.n_state, 1, 1, 1},
           .n_bytes = size.n_state * sizeof(float)});
    }
    if (size.n_rows == 0) continue;
    const bool local = layers.is_local(static_cast<int64_t>(layer));
    const RowType type = local ? window_row_type(shape.row_type) : shape.row_type;
    const auto add_rows = [&](const char* kind, uint64_t n_bytes) {
      TensorSpec spec = {.name = fmt::format("{}.{}", kind, layer),
                         .type = static_cast<uint32_t>(type),
                         .ne = {static_cast<uint64_t>(shape.head_dim), size.n_rows, 1, 1},
                         .n_bytes = n_bytes};
      if (is_quantised(type)) {
        spec.type = kTensorI8;
        spec.ne = {n_bytes, 1, 1, 1};
      }
      add(std::move(spec));
    };
    add_rows("k", size.k_bytes);
    if (!shape.value_in_key) add_rows("v", size.v_bytes);
  }
  return specs;
}

}  // namespace ctxzip
