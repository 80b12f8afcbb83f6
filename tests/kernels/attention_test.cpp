// Every implementation of the attention kernels against an exact masked softmax.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "attention_fixture.h"

namespace ctxzip::testing {
namespace {

// Around the sizes that the kernels work in: register rows (12), tile blocks (64), chunks (96).
const std::vector<int64_t> kRowCounts = {0,  1,  2,  11, 12, 13,  27,  63,
                                         64, 65, 95, 96, 97, 131, 195, 515};

TEST_P(AttentionTest, BlockMatchesExactForEveryRowCount) {
  const StoredRows rows = random_rows(kRowCounts.back() + 3);
  const std::vector<float> q = random_queries(1);
  for (const int64_t n : kRowCounts) {
    if (big_group() && n > 100) break;
    SCOPED_TRACE(n);
    const Segment segment = rows.segment(n + 3);
    expect_block(q.data() + 1, segment, 3, n + 3, exact_rows(rows, segment));
  }
}

TEST_P(AttentionTest, BlockFollowsTheIndex) {
  const StoredRows rows = random_rows(400);
  const std::vector<float> q = random_queries(1);
  std::vector<uint32_t> index;
  for (uint32_t row = 1; row < 400; row += 1 + row % 4) index.push_back(row);
  const Segment segment = rows.segment(index);
  expect_block(q.data() + 1, segment, 5, segment.n_rows, exact_rows(rows, segment));
}

TEST_P(AttentionTest, MergedBlocksMatchTheWholeSegment) {
  const int64_t n = big_group() ? 200 : 1200;
  const StoredRows rows = random_rows(n, 3);
  const std::vector<float> q = random_queries(1);
  const Segment segment = rows.segment(n);
  const std::vector<int64_t> cuts = {0, 0, 1, 130, 130, n - 7, n};  // some blocks are empty
  const size_t block_floats = static_cast<size_t>(shape_.group * (shape_.n_value() + 2));
  std::vector<float> partials((cuts.size() - 1) * block_floats);
  for (size_t block = 0; block + 1 < cuts.size(); ++block) {
    kernels().attend_block(shape_, q.data() + 1, segment, cuts[block], cuts[block + 1],
                           partials.data() + block * block_floats);
  }
  GuardedFloats out(static_cast<size_t>(shape_.group * shape_.n_value()));
  const auto stride = static_cast<int64_t>(block_floats);
  kernels().merge_blocks(shape_, partials.data(), stride, static_cast<int64_t>(cuts.size()) - 1,
                         out.data());
  EXPECT_TRUE(out.guards_intact());
  for (int64_t head = 0; head < shape_.group; ++head) {
    const ExactHead exact = exact_attention(q.data() + 1 + head * shape_.head_dim, shape_.head_dim,
                                            double{shape_.scale}, exact_rows(rows, segment));
    for (int64_t dim = 0; dim < shape_.n_value(); ++dim) {
      ASSERT_NEAR(out[static_cast<size_t>(head * shape_.n_value() + dim)],
                  exact.out[static_cast<size_t>(dim)], score_tolerance(exact) * exact.max_abs_v);
    }
  }
  kernels().merge_blocks(shape_, partials.data(), stride, 1, out.data());
  EXPECT_EQ(out[0], 0) << "the first block is empty";
  kernels().merge_blocks(shape_, partials.data(), stride, 0, out.data());
  EXPECT_EQ(out[0], 0);
}

TEST_P(AttentionTest, TileMatchesExactForEveryRowCount) {
  const StoredRows rows = random_rows(200);
  for (const int64_t n : kRowCounts) {
    if (n > 200 || (big_group() && n % 3 != 0)) continue;
    SCOPED_TRACE(n);
    const int64_t n_tokens = 1 + n % 5;
    const Segment segment = rows.segment(n);
    expect_tile(random_queries(n_tokens), n_tokens,
                {.segments = {&segment, 1}, .n_lse_segments = 1}, {exact_rows(rows, segment)});
  }
}

TEST_P(AttentionTest, TileHandlesCausalEmptyAndIndexedSegments) {
  const StoredRows context = random_rows(150);
  const StoredRows own = random_rows(70);
  std::vector<uint32_t> index;
  for (uint32_t row = 0; row < 150; row += 1 + row % 3) index.push_back(row);
  for (const int64_t n_tokens : {1, 5, 32}) {
    if (big_group() && n_tokens == 32) continue;
    for (const int64_t causal_rows : {0, 1, 33, 64}) {
      for (const int n_lse_segments : {0, 1, 3, 4}) {
        if (causal_rows != 33 && (n_lse_segments != 1 || n_tokens != 5)) continue;
        if (n_lse_segments != 1 && n_tokens == 32) continue;
        SCOPED_TRACE(::testing::Message()
                     << n_tokens << " tokens, " << causal_rows << " rows, lse " << n_lse_segments);
        const std::vector<Segment> segments = {context.segment(index), Segment(), own.segment(70),
                                               context.slice(10, 12)};
        std::vector<std::vector<ExactRow>> rows = {exact_rows(context, segments[0]),
                                                   {},
                                                   exact_rows(own, segments[2]),
                                                   {{&context, 10}, {&context, 11}}};
        expect_tile(random_queries(n_tokens), n_tokens,
                    {segments, 2, causal_rows, n_lse_segments, {}}, rows);
      }
    }
  }
}

// As a sliding-window layer uses it: rows before the window's start are hidden from one token after
// the other, across segments and the kernels' block edges.
TEST_P(AttentionTest, TileHidesRowsBeforeAWindow) {
  const StoredRows frozen = random_rows(131);
  const StoredRows own = random_rows(150);
  const std::vector<Segment> segments = {frozen.segment(131), own.segment(150)};
  const std::vector<std::vector<ExactRow>> rows = {exact_rows(frozen, segments[0]),
                                                   exact_rows(own, segments[1])};
  const std::vector<std::vector<int64_t>> cases = {{-40, -171}, {0, -131}, {60, -71}, {63, -68},
                                                   {129, -2},   {131, 0},  {200, 70}, {140, 200}};
  for (const int64_t n_tokens : {1, 5, 32}) {
    if (big_group() && n_tokens == 32) continue;
    for (const auto& hidden : cases) {
      if (big_group() && hidden[0] % 10 != 0) continue;
      SCOPED_TRACE(::testing::Message() << n_tokens << " tokens, hidden " << hidden[0]);
      expect_tile(random_queries(n_tokens), n_tokens, {segments, 1, 100, 1, hidden}, rows);
    }
  }
}

TEST_P(AttentionTest, TokensThatSeeNothingGetZeros) {
  const StoredRows rows = random_rows(8);
  const Segment segment = rows.segment(8);
  const TileSegments over = {{&segment, 1}, 0, 0, 1, {}};
  expect_tile(random_queries(3), 3, over, {exact_rows(rows, segment)});
  expect_tile(random_queries(3), 3, {}, {});
}

TEST_P(AttentionTest, LargeScoresAndTies) {
  const int64_t n = 130;
  StoredRows rows = random_rows(n);
  std::vector<float> q = random_queries(2);
  // Scores of exactly +-80 on most rows, so that exp underflows or ties.
  const float unit = 80.0f / shape_.scale / static_cast<float>(shape_.head_dim) / 2;
  for (float& value : q) value = 2;
  for (int64_t row = 0; row < n; ++row) {
    const float value = row % 7 == 0 ? unit : row % 7 == 1 ? 0.0f : -unit;
    for (int64_t dim = 0; dim < shape_.head_dim; ++dim) rows.set_k(row, dim, value);
  }
  const Segment segment = rows.segment(n);
  expect_tile(q, 2, {.segments = {&segment, 1}, .n_lse_segments = 1}, {exact_rows(rows, segment)});
  expect_block(q.data() + 1, segment, 0, n, exact_rows(rows, segment));
}

TEST_P(AttentionTest, InfinitelyLowScoresGiveNoNaN) {
  StoredRows rows = random_rows(20);
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t dim = 0; dim < shape_.head_dim; ++dim) rows.set_k(row, dim, -6e4f);
  }
  const std::vector<float> q(static_cast<size_t>(token_stride()) + 1, 1e38f);
  const Segment segment = rows.segment(20);
  GuardedFloats partial(static_cast<size_t>(shape_.group * (shape_.n_value() + 2)));
  GuardedFloats out(static_cast<size_t>(shape_.group * shape_.n_value()));
  GuardedScratch scratch(kernels().scratch_bytes(shape_));
  kernels().attend_block(shape_, q.data() + 1, segment, 0, 20, partial.data());
  kernels().attend_tile(shape_, {q.data() + 1, 1, token_stride()}, {.segments = {&segment, 1}},
                        out.data(), shape_.group * shape_.n_value(), nullptr, scratch.data());
  for (size_t at = 0; at < partial.size(); ++at) ASSERT_FALSE(std::isnan(partial[at])) << at;
  for (size_t at = 0; at < out.size(); ++at) ASSERT_FALSE(std::isnan(out[at])) << at;
}

TEST_P(AttentionTest, ColumnMaxMatchesExact) {
  const int64_t n = 131;
  const StoredRows rows = random_rows(n);
  std::vector<uint32_t> index;
  for (uint32_t row = 0; row < n; row += 1 + row % 2) index.push_back(row);
  for (const int64_t n_tokens : {1, 7, 32}) {
    if (big_group() && n_tokens > 1) continue;
    const std::vector<float> q = random_queries(n_tokens);
    const Queries queries = {q.data() + 1, n_tokens, token_stride()};
    std::vector<float> lse(static_cast<size_t>(n_tokens * shape_.group));
    for (size_t at = 0; at < lse.size(); ++at) {
      lse[at] = at % 5 == 3 ? kMinusInfinity : static_cast<float>(at % 4) - 1.5f;
    }
    for (const Segment& columns : {rows.segment(n), rows.segment(index)}) {
      SCOPED_TRACE(::testing::Message() << n_tokens << " tokens, " << columns.n_rows << " columns");
      GuardedFloats best(static_cast<size_t>(columns.n_rows));
      for (size_t at = 0; at < best.size(); ++at) {
        best.data()[at] = at % 9 == 0 ? 1e6f : kMinusInfinity;
      }
      GuardedScratch scratch(kernels().scratch_bytes(shape_));
      const int64_t begin = 2;
      const int64_t end = columns.n_rows - 1;
      kernels().column_max(shape_, queries, lse.data(), columns, begin, end, best.data(),
                           scratch.data());
      EXPECT_TRUE(best.guards_intact() && scratch.guards_intact());
      for (int64_t column = 0; column < columns.n_rows; ++column) {
        double expected = column % 9 == 0 ? 1e6 : double{kMinusInfinity};
        double max_abs = 0;
        for (size_t m = 0; m < lse.size() && column >= begin && column < end; ++m) {
          if (lse[m] == kMinusInfinity) continue;
          const int64_t at = static_cast<int64_t>(m);
          const float* query = queries.data + at / shape_.group * token_stride() +
                               at % shape_.group * shape_.head_dim;
          const double score = exact_score(query, shape_.head_dim, double{shape_.scale},
                                           exact_rows(rows, columns)[static_cast<size_t>(column)]);
          expected = std::max(expected, score - double{lse[m]});
          max_abs = std::max(max_abs, std::abs(score));
        }
        const float value = best[static_cast<size_t>(column)];
        if (expected == double{kMinusInfinity}) {
          ASSERT_EQ(value, kMinusInfinity) << column;
        } else {
          ASSERT_NEAR(value, expected, implementation_.roundings * kEpsilon * (2 + max_abs))
              << column;
        }
      }
    }
  }
}

TEST_P(AttentionTest, ColumnSumMatchesExact) {
  const int64_t n = 131;
  const StoredRows rows = random_rows(n);
  const Segment columns = rows.segment(n);
  const std::vector<ExactRow> all = exact_rows(rows, columns);
  for (const int64_t n_tokens : {1, 7, 35}) {
    if (big_group() && n_tokens > 1) continue;
    SCOPED_TRACE(n_tokens);
    const std::vector<float> q = random_queries(n_tokens);
    const Queries queries = {q.data() + 1, n_tokens, token_stride()};
    std::vector<float> lse(static_cast<size_t>(n_tokens * shape_.group));
    std::vector<double> expected(static_cast<size_t>(n), 2);
    const int64_t begin = 2;
    const int64_t end = n - 1;
    double max_abs = 0;
    for (size_t m = 0; m < lse.size(); ++m) {
      const int64_t at = static_cast<int64_t>(m);
      const float* query =
          queries.data + at / shape_.group * token_stride() + at % shape_.group * shape_.head_dim;
      const ExactHead exact = exact_attention(query, shape_.head_dim, double{shape_.scale}, all);
      lse[m] = m % 5 == 3 ? kMinusInfinity : static_cast<float>(exact.lse);
      max_abs = std::max(max_abs, exact.max_abs_score);
      if (lse[m] == kMinusInfinity) continue;
      for (int64_t column = begin; column < end; ++column) {
        const double score = exact_score(query, shape_.head_dim, double{shape_.scale},
                                         all[static_cast<size_t>(column)]);
        expected[static_cast<size_t>(column)] += std::exp(score - double{lse[m]});
      }
    }
    GuardedFloats sums(static_cast<size_t>(n));
    std::fill_n(sums.data(), n, 2.0f);
    GuardedScratch scratch(kernels().scratch_bytes(shape_));
    kernels().column_sum(shape_, queries, lse.data(), columns, begin, end, sums.data(),
                         scratch.data());
    EXPECT_TRUE(sums.guards_intact() && scratch.guards_intact());
    for (size_t column = 0; column < sums.size(); ++column) {
      const double tolerance = implementation_.roundings * kEpsilon * (2 + max_abs);
      ASSERT_NEAR(sums[column], expected[column], tolerance * expected[column]) << column;
    }
  }
}

TEST_P(AttentionTest, SplittingASegmentChangesNothing) {
  const int64_t n = 197;
  const StoredRows rows = random_rows(n, 2);
  const int64_t n_tokens = 3;
  const std::vector<float> q = random_queries(n_tokens);
  const std::vector<ExactRow> all = exact_rows(rows, rows.segment(n));
  for (const int64_t cut : {0, 1, 63, 64, 100, 196, 197}) {
    if (big_group() && cut != 100) continue;
    SCOPED_TRACE(cut);
    const std::vector<Segment> segments = {rows.slice(0, cut), rows.slice(cut, n)};
    expect_tile(q, n_tokens, {.segments = segments, .n_lse_segments = 2},
                {{all.begin(), all.begin() + cut}, {all.begin() + cut, all.end()}});
  }
}

TEST_P(AttentionTest, ResultsDoNotDependOnAddresses) {
  const int64_t n = 150;
  const int64_t n_tokens = 4;
  const std::vector<float> q = random_queries(n_tokens);
  std::vector<std::vector<float>> results;
  for (const size_t misalign : {size_t{0}, size_t{1}, size_t{5}, size_t{16}}) {
    StoredRows rows(shape_.row_type, shape_.head_dim, n, misalign);
    if (shape_.value_dim > 0) rows.share();
    std::mt19937 random(kSeed + 1);
    rows.randomise(random);
    const Segment segment = rows.segment(n);
    GuardedFloats moved_q(q.size(), misalign);
    std::copy(q.begin(), q.end(), moved_q.data());
    const Queries queries = {moved_q.data(), n_tokens, token_stride()};
    GuardedScratch scratch(kernels().scratch_bytes(shape_), misalign);
    GuardedFloats partial(static_cast<size_t>(shape_.group * (shape_.n_value() + 2)), misalign);
    GuardedFloats out(static_cast<size_t>(n_tokens * shape_.group * shape_.n_value()), misalign);
    GuardedFloats lse(static_cast<size_t>(n_tokens * shape_.group), misalign);
    std::vector<float> best(static_cast<size_t>(n), kMinusInfinity);
    kernels().attend_block(shape_, moved_q.data(), segment, 0, n, partial.data());
    kernels().attend_tile(shape_, queries, {{&segment, 1}, 0, 77, 1}, out.data(),
                          shape_.group * shape_.n_value(), lse.data(), scratch.data());
    kernels().column_max(shape_, queries, lse.data(), segment, 0, n, best.data(), scratch.data());
    for (const GuardedFloats* values : {&partial, &out, &lse}) {
      best.insert(best.end(), values->data(), values->data() + values->size());
    }
    results.push_back(best);
  }
  for (const std::vector<float>& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, AttentionTest,
                         ::testing::Combine(::testing::Range(size_t{0}, implementations().size()),
                                            ::testing::Values(RowType::kF32, RowType::kF16),
                                            ::testing::ValuesIn(kShapes)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(Latent, AttentionTest,
                         ::testing::Combine(::testing::Range(size_t{0}, implementations().size()),
                                            ::testing::Values(RowType::kF32, RowType::kF16),
                                            ::testing::ValuesIn(kLatentShapes)),
                         test_name);

TEST(AttentionKernelsTest, AreFoundByName) {
  RecordProperty("seed", static_cast<int>(kSeed));
  std::cout << "seed " << kSeed << ", tuned target " << tuned_target_name() << "\n";
  EXPECT_EQ(find_attention_kernels("ref"), &ref_attention_kernels());
  EXPECT_EQ(find_attention_kernels("tuned"), &tuned_attention_kernels());
  EXPECT_EQ(find_attention_kernels("cuda"), nullptr);
}

}  // namespace
}  // namespace ctxzip::testing
