#include "cache/dense_cache.h"

#include <cstring>

#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr size_t kSlotAlignment = 64;  // a cache line, the widest vector

// Bytes between the starts of two heads' rows.
size_t slot_bytes(const KvShape& shape, int64_t capacity) {
  const size_t used = static_cast<size_t>(capacity) * shape.row_size();
  return (used + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
}

// Slots of a layer: K of every head, then V of every head unless it lies in K.
int64_t n_slots(const KvShape& shape) { return (shape.value_in_key ? 1 : 2) * shape.n_kv_head; }

}  // namespace

DenseCache::DenseCache(const KvShape& shape, int64_t capacity)
    : shape_(shape), capacity_(capacity) {
  CHECK(shape.n_layer >= 0 && shape.n_kv_head > 0 && shape.head_dim > 0 && capacity >= 0);
  constexpr size_t kAddressSpace = size_t{1} << 47;
  const size_t row_in_layer = static_cast<size_t>(shape.n_kv_head) * shape.pair_size();
  if (static_cast<size_t>(capacity) > kAddressSpace / row_in_layer) {
    fail(ErrorKind::kOutOfMemory,
         "a cache of {} rows of {} bytes per layer exceeds the address space; use a shorter text",
         capacity, row_in_layer);
  }
  const size_t layer_bytes = slot_bytes(shape, capacity) * static_cast<size_t>(n_slots(shape));
  layers_.reserve(static_cast<size_t>(shape.n_layer));
  for (int64_t layer = 0; layer < shape.n_layer; ++layer) layers_.emplace_back(layer_bytes);
}

std::byte* DenseCache::rows(int64_t layer, int64_t slot) const {
  std::byte* const data = layers_[static_cast<size_t>(layer)].data();
  if (data == nullptr) return nullptr;
  return data + static_cast<size_t>(slot) * slot_bytes(shape_, capacity_);
}

std::byte* DenseCache::k_rows(int64_t layer, int64_t kv_head) const { return rows(layer, kv_head); }

std::byte* DenseCache::v_rows(int64_t layer, int64_t kv_head) const {
  return rows(layer, shape_.value_in_key ? kv_head : shape_.n_kv_head + kv_head);
}

Segment DenseCache::segment(int64_t layer, int64_t kv_head, int64_t begin, int64_t end) const {
  CHECK(0 <= begin && begin <= end && end <= capacity_);
  if (begin == end) return {};
  const std::byte* const k = k_rows(layer, kv_head);
  CHECK(k != nullptr);
  const size_t offset = static_cast<size_t>(begin) * shape_.row_size();
  return {.k = k + offset, .v = v_rows(layer, kv_head) + offset, .n_rows = end - begin};
}

void DenseCache::extend(int64_t n) {
  CHECK(n >= 0 && n <= capacity_ - n_rows_);
  n_rows_ += n;
}

void DenseCache::truncate(int64_t n_rows) {
  CHECK(n_rows >= 0 && n_rows <= n_rows_);
  n_rows_ = n_rows;
  discard(n_rows, capacity_);
}

void DenseCache::drop_front(int64_t n) {
  CHECK(n >= 0 && n <= n_rows_);
  n_rows_ -= n;
  const size_t dropped = static_cast<size_t>(n) * shape_.row_size();
  const size_t kept = static_cast<size_t>(n_rows_) * shape_.row_size();
  for (int64_t layer = 0; layer < shape_.n_layer && kept > 0; ++layer) {
    for (int64_t slot = 0; slot < n_slots(shape_); ++slot) {
      std::byte* const start = rows(layer, slot);
      std::memmove(start, start + dropped, kept);
    }
  }
}

void DenseCache::forget(int64_t end) {
  CHECK(end >= 0 && end <= n_rows_);
  discard(0, end);
}

void DenseCache::discard(int64_t begin, int64_t end) {
  const size_t stride = slot_bytes(shape_, capacity_);
  const size_t first = static_cast<size_t>(begin) * shape_.row_size();
  const size_t last = end == capacity_ ? stride : static_cast<size_t>(end) * shape_.row_size();
  for (Mapping& layer : layers_) {
    for (int64_t slot = 0; slot < n_slots(shape_); ++slot) {
      const size_t start = static_cast<size_t>(slot) * stride;
      layer.discard(start + first, start + last);
    }
  }
}

void DenseCache::release_layer(int64_t layer) { layers_[static_cast<size_t>(layer)].release(); }

}  // namespace ctxzip
