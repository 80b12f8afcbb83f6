#include "cache/dense_cache.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ctxzip/error.h"

namespace ctxzip {
namespace {

constexpr KvShape kShape = {
    .n_layer = 2, .n_kv_head = 3, .head_dim = 64, .row_type = RowType::kF16};

TEST(DenseCache, HeadsDoNotOverlap) {
  const DenseCache cache(kShape, 5);
  const size_t head_bytes = 5 * kShape.row_size();
  for (int64_t layer = 0; layer < kShape.n_layer; ++layer) {
    for (int64_t head = 0; head < kShape.n_kv_head; ++head) {
      const int value = static_cast<int>(10 * layer + head);
      std::memset(cache.k_rows(layer, head), value, head_bytes);
      std::memset(cache.v_rows(layer, head), 100 + value, head_bytes);
    }
  }
  for (int64_t layer = 0; layer < kShape.n_layer; ++layer) {
    for (int64_t head = 0; head < kShape.n_kv_head; ++head) {
      const int value = static_cast<int>(10 * layer + head);
      for (const size_t at : {size_t{0}, head_bytes - 1}) {
        EXPECT_EQ(cache.k_rows(layer, head)[at], static_cast<std::byte>(value));
        EXPECT_EQ(cache.v_rows(layer, head)[at], static_cast<std::byte>(100 + value));
      }
    }
  }
}

TEST(DenseCache, RowsStartAtCacheLines) {
  const DenseCache cache({.n_layer = 1, .n_kv_head = 3, .head_dim = 8}, 3);
  for (int64_t head = 0; head < 3; ++head) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(cache.k_rows(0, head)) % 64, 0u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(cache.v_rows(0, head)) % 64, 0u);
  }
}

TEST(DenseCache, SegmentPointsIntoTheHead) {
  DenseCache cache(kShape, 5);
  cache.extend(4);
  const Segment segment = cache.segment(1, 2, 1, 4);
  EXPECT_EQ(segment.k, cache.k_rows(1, 2) + kShape.row_size());
  EXPECT_EQ(segment.v, cache.v_rows(1, 2) + kShape.row_size());
  EXPECT_EQ(segment.n_rows, 3);
  EXPECT_EQ(segment.index, nullptr);
  EXPECT_EQ(cache.segment(0, 0, 2, 2).n_rows, 0);
}

TEST(DenseCache, ExtendAndTruncate) {
  DenseCache cache(kShape, 5);
  EXPECT_EQ(cache.n_rows(), 0);
  cache.extend(5);
  std::memset(cache.k_rows(0, 0), 7, 5 * kShape.row_size());
  cache.truncate(2);
  EXPECT_EQ(cache.n_rows(), 2);
  EXPECT_EQ(cache.k_rows(0, 0)[2 * kShape.row_size() - 1], std::byte{7});
  cache.extend(3);
  EXPECT_EQ(cache.n_rows(), 5);
}

TEST(DenseCache, TruncateGivesMemoryBack) {
  constexpr int64_t kRows = 50'000;
  DenseCache cache(kShape, kRows);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 3; ++head) {
      std::memset(cache.k_rows(layer, head), 1, kRows * kShape.row_size());
      std::memset(cache.v_rows(layer, head), 1, kRows * kShape.row_size());
    }
  }
  cache.extend(kRows);
  const int64_t before = resident_memory().anonymous_bytes;
  cache.truncate(100);
  const auto used = static_cast<int64_t>(6 * kRows * kShape.pair_size());
  EXPECT_LE(resident_memory().anonymous_bytes, before - used * 95 / 100);
  EXPECT_EQ(cache.v_rows(1, 2)[100 * kShape.row_size() - 1], std::byte{1});
}

TEST(DenseCache, ReservingCostsNoMemory) {
  const int64_t before = resident_memory().anonymous_bytes;
  const DenseCache cache(kShape, 100'000'000);  // 150 GB
  EXPECT_LE(resident_memory().anonymous_bytes - before, int64_t{1} << 20);
}

TEST(DenseCache, AbsurdCapacityIsOutOfMemory) {
  for (const int64_t capacity : {int64_t{1} << 62, int64_t{1} << 45, int64_t{1} << 38}) {
    try {
      const DenseCache cache(kShape, capacity);
      FAIL() << capacity;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
    }
  }
}

TEST(DenseCache, ReleasedLayerIsNull) {
  DenseCache cache(kShape, 5);
  cache.release_layer(0);
  EXPECT_EQ(cache.k_rows(0, 1), nullptr);
  EXPECT_NE(cache.k_rows(1, 1), nullptr);
  cache.truncate(0);
}

}  // namespace
}  // namespace ctxzip
