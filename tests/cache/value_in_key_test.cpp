// Stores of latent rows, whose values are the first part of their keys, and recurrent states.
#include <gtest/gtest.h>

#include "cache/recurrent_states.h"
#include "cache/surviving_rows.h"
#include "cache/tail.h"

namespace ctxzip {
namespace {

constexpr KvShape kShape = {
    .n_layer = 2, .n_kv_head = 1, .head_dim = 8, .row_type = RowType::kF16, .value_in_key = true};
constexpr int64_t kPrefix = 2;

uint16_t element(int64_t layer, int64_t row, int64_t col) {
  return static_cast<uint16_t>((layer * 64 + row) * 8 + col);
}

// Row r of the cache is row `first` + r of the text.
DenseCache filled(int64_t first, int64_t n_rows) {
  DenseCache cache(kShape, n_rows);
  for (int64_t layer = 0; layer < kShape.n_layer; ++layer) {
    auto* rows = reinterpret_cast<uint16_t*>(cache.k_rows(layer, 0));
    for (int64_t at = 0; at < n_rows * 8; ++at) {
      rows[at] = element(layer, first + at / 8, at % 8);
    }
  }
  cache.extend(n_rows);
  return cache;
}

void expect_rows(const Segment& segment, int64_t layer, const std::vector<int64_t>& rows) {
  ASSERT_EQ(segment.n_rows, static_cast<int64_t>(rows.size()));
  EXPECT_EQ(segment.k, segment.v);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t col = 0; col < 8; ++col) {
      EXPECT_EQ(static_cast<const uint16_t*>(segment.v)[row * 8 + col],
                element(layer, rows[row], static_cast<int64_t>(col)));
    }
  }
}

KeepSet keep(std::vector<std::vector<uint32_t>> rows, int64_t n_context) {
  return {.n_layer = 2, .n_kv_head = 1, .n_context = n_context, .rows = std::move(rows)};
}

TEST(ValueInKey, RowsAreStoredOnce) {
  DenseCache full = filled(0, kPrefix + 10);
  EXPECT_EQ(full.v_rows(1, 0), full.k_rows(1, 0));
  const ZippedRows rows = compact(full, kPrefix, keep({{0, 4, 9}, {}}, 10));
  EXPECT_EQ(rows.kv_bytes(), (5 + 2) * 16);
  expect_rows(rows.segment(0, 0), 0, {0, 1, 2, 6, 11});
  expect_rows(rows.segment(1, 0), 1, {0, 1});
}

TEST(ValueInKey, SurvivorsKeepTheirRows) {
  SurvivingRows survivors(kShape, kPrefix, 12);
  const DenseCache first = filled(0, kPrefix + 6);
  survivors.add_prefix(first);
  survivors.merge(first, kPrefix, 0, keep({{0, 1, 3, 5}, {2}}, 12));
  const DenseCache second = filled(kPrefix + 6, 6);
  survivors.merge(second, 0, 6, keep({{1, 5, 6, 11}, {2, 7}}, 12));
  expect_rows(survivors.segment(0, 0), 0, {0, 1, 3, 7, 8, 13});
  expect_rows(survivors.segment(1, 0), 1, {0, 1, 4, 9});
  EXPECT_EQ(survivors.kv_bytes(), (6 + 4) * 16);
}

TEST(RecurrentTail, GoesBackToTheTurnOrToTheStart) {
  const LayerMap layers("gr", 0);
  KvShape shape = kShape;
  shape.n_layer = 1;
  KvShape none = kShape;
  none.n_layer = 0;
  RecurrentStates start = empty_states(1, 3);
  start.values = {1, 2, 3};
  Tail tail(layers, shape, none, start, 100);
  const auto feed = [&](float value) {
    tail.states().next().values.assign(3, value);
    tail.extend(5);
  };
  feed(10);
  tail.begin_turn();
  feed(20);
  feed(30);
  EXPECT_EQ(tail.states().now().values[0], 30);
  tail.truncate(5);
  EXPECT_EQ(tail.states().now().values[0], 10);
  // What a failed batch wrote is never seen.
  tail.states().next().values.assign(3, 99);
  tail.truncate(5);
  EXPECT_EQ(tail.states().now().values[0], 10);
  tail.truncate(0);
  EXPECT_TRUE(tail.states().now() == start);
}

}  // namespace
}  // namespace ctxzip
