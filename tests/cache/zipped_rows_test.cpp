#include "cache/zipped_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "core/memory.h"

namespace ctxzip {
namespace {

constexpr int64_t kPrefix = 3;
constexpr int64_t kContext = 20;
constexpr KvShape kShape = {.n_layer = 2, .n_kv_head = 3, .head_dim = 8, .row_type = RowType::kF16};

// Every byte pair tells where it came from.
uint16_t element(int64_t layer, int64_t head, bool is_value, int64_t row, int64_t col) {
  return static_cast<uint16_t>((((layer * 3 + head) * 2 + is_value) * 64 + row) * 8 + col);
}

DenseCache filled_cache() {
  DenseCache cache(kShape, kPrefix + kContext + 1);
  for (int64_t layer = 0; layer < kShape.n_layer; ++layer) {
    for (int64_t head = 0; head < kShape.n_kv_head; ++head) {
      auto* const k = reinterpret_cast<uint16_t*>(cache.k_rows(layer, head));
      auto* const v = reinterpret_cast<uint16_t*>(cache.v_rows(layer, head));
      for (int64_t row = 0; row < kPrefix + kContext; ++row) {
        for (int64_t col = 0; col < 8; ++col) {
          k[row * 8 + col] = element(layer, head, false, row, col);
          v[row * 8 + col] = element(layer, head, true, row, col);
        }
      }
    }
  }
  cache.extend(kPrefix + kContext);
  return cache;
}

// Ragged: an empty head, one-row heads at both ends, everything, runs.
KeepSet ragged_keep_set() {
  KeepSet kept{.n_layer = 2, .n_kv_head = 3, .n_context = kContext, .rows = {}};
  std::vector<uint32_t> all;
  for (uint32_t row = 0; row < kContext; ++row) all.push_back(row);
  kept.rows = {{}, {0}, {19}, all, {2, 3, 4, 7, 9, 10}, {}};
  return kept;
}

void expect_rows(const ZippedRows& rows) {
  for (int64_t layer = 0; layer < kShape.n_layer; ++layer) {
    for (int64_t head = 0; head < kShape.n_kv_head; ++head) {
      std::vector<int64_t> from;
      for (int64_t row = 0; row < rows.n_prefix; ++row) from.push_back(row);
      for (const uint32_t row : rows.kept.at(layer, head)) from.push_back(rows.n_prefix + row);
      const Segment segment = rows.segment(layer, head);
      ASSERT_EQ(segment.n_rows, static_cast<int64_t>(from.size()));
      ASSERT_EQ(rows.n_rows(layer, head), segment.n_rows);
      for (size_t row = 0; row < from.size(); ++row) {
        for (size_t col = 0; col < 8; ++col) {
          const auto k = static_cast<const uint16_t*>(segment.k)[row * 8 + col];
          const auto v = static_cast<const uint16_t*>(segment.v)[row * 8 + col];
          ASSERT_EQ(k, element(layer, head, false, from[row], static_cast<int64_t>(col)));
          ASSERT_EQ(v, element(layer, head, true, from[row], static_cast<int64_t>(col)));
        }
      }
    }
  }
}

TEST(ZippedRows, CompactTakesPrefixThenKeptRowsOfEachHead) {
  DenseCache full = filled_cache();
  const ZippedRows rows = compact(full, kPrefix, ragged_keep_set());
  expect_rows(rows);
  EXPECT_EQ(full.k_rows(0, 0), nullptr);
  EXPECT_EQ(full.k_rows(1, 2), nullptr);
  EXPECT_EQ(rows.kept, ragged_keep_set());
  EXPECT_EQ(rows.n_positions(), kPrefix + kContext);
  EXPECT_EQ(rows.layer_rows(0), 3 * kPrefix + 2);
  EXPECT_EQ(rows.layer_rows(1), 3 * kPrefix + 26);
  EXPECT_EQ(rows.kv_bytes(), (6 * kPrefix + 28) * 32);
  const size_t row = rows.shape.row_size();
  EXPECT_EQ(rows.k_offset, (std::vector<size_t>{0, 3 * row, 7 * row, 0, 23 * row, 32 * row}));
  EXPECT_EQ(rows.v_offset, rows.k_offset);
}

TEST(ZippedRows, CopyLeavesTheCache) {
  DenseCache full = filled_cache();
  const ZippedRows copy = compact_copy(full, kPrefix, ragged_keep_set());
  expect_rows(copy);
  EXPECT_EQ(full.n_rows(), kPrefix + kContext);
  expect_rows(compact(full, kPrefix, ragged_keep_set()));
  expect_rows(copy);
}

TEST(ZippedRows, WithoutPrefixALayerMayBeEmpty) {
  DenseCache full = filled_cache();
  KeepSet kept{.n_layer = 2, .n_kv_head = 3, .n_context = kContext, .rows = {}};
  kept.rows = {{}, {}, {}, {5}, {}, {0, 19}};
  const ZippedRows rows = compact(full, 0, kept);
  expect_rows(rows);
  EXPECT_EQ(rows.layer_rows(0), 0);
  EXPECT_EQ(rows.segment(0, 1).n_rows, 0);
}

TEST(ZippedRows, OutlivesTheCacheAndItsCopies) {
  ZippedRows outer;
  {
    DenseCache full = filled_cache();
    const ZippedRows inner = compact_copy(full, kPrefix, ragged_keep_set());
    outer = inner;
  }
  expect_rows(outer);
}

TEST(ZippedRows, FloatRows) {
  KvShape shape = kShape;
  shape.row_type = RowType::kF32;
  DenseCache full(shape, 4);
  for (int64_t head = 0; head < 3; ++head) {
    for (int64_t layer = 0; layer < 2; ++layer) {
      auto* const k = reinterpret_cast<float*>(full.k_rows(layer, head));
      for (int col = 0; col < 32; ++col) k[col] = static_cast<float>(col);
    }
  }
  full.extend(4);
  KeepSet kept{.n_layer = 2, .n_kv_head = 3, .n_context = 3, .rows = {}};
  kept.rows = {{2}, {2}, {2}, {2}, {2}, {2}};
  const ZippedRows rows = compact(full, 1, kept);
  const auto* const k = static_cast<const float*>(rows.segment(1, 1).k);
  EXPECT_EQ(k[0], 0);
  EXPECT_EQ(k[8], 24);
}

TEST(ZippedRows, CompactionFreesMemoryLayerByLayer) {
  constexpr KvShape kBig = {
      .n_layer = 20, .n_kv_head = 4, .head_dim = 64, .row_type = RowType::kF16};
  constexpr int64_t kRows = 10'000;  // 205 MB
  DenseCache full(kBig, kRows);
  KeepSet kept{.n_layer = 20, .n_kv_head = 4, .n_context = kRows, .rows = {}};
  for (int64_t layer = 0; layer < kBig.n_layer; ++layer) {
    for (int64_t head = 0; head < kBig.n_kv_head; ++head) {
      std::memset(full.k_rows(layer, head), 1, kRows * kBig.row_size());
      std::memset(full.v_rows(layer, head), 2, kRows * kBig.row_size());
      auto& rows = kept.rows.emplace_back();
      for (uint32_t row = 0; row < kRows; row += 5) rows.push_back(row);
    }
  }
  full.extend(kRows);
  const int64_t before = resident_memory().anonymous_bytes;
  const auto full_bytes = static_cast<int64_t>(80 * kRows * kBig.pair_size());
  ASSERT_GE(before, full_bytes);
  const ZippedRows rows = compact(full, 0, std::move(kept));
  // A fifth is kept; the slack is one layer's worth.
  EXPECT_LE(resident_memory().anonymous_bytes, before - full_bytes * 75 / 100);
  EXPECT_EQ(rows.kv_bytes(), full_bytes / 5);
}

TEST(ZippedRowsDeathTest, RefusesUnorderedRows) {
  DenseCache full = filled_cache();
  KeepSet kept = ragged_keep_set();
  kept.rows[4] = {3, 2};
  EXPECT_DEATH(compact_copy(full, kPrefix, kept), "internal error");
  kept.rows[4] = {kContext};
  EXPECT_DEATH(compact_copy(full, kPrefix, kept), "internal error");
}

}  // namespace
}  // namespace ctxzip
