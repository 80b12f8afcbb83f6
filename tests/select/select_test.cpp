#include "select/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ctxzip/error.h"
#include "score/random.h"

namespace ctxzip {
namespace {

Scores make_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context,
                   std::vector<float> values) {
  return {.n_layer = n_layer,
          .n_kv_head = n_kv_head,
          .n_context = n_context,
          .values = std::move(values)};
}

// f16 rows; a pair takes `pair_bytes`.
ContextSize context_size(int64_t n_layer, int64_t n_kv_head, int64_t n_context, int64_t n_prefix,
                         int64_t pair_bytes) {
  return {.stored = {.n_layer = n_layer, .n_kv_head = n_kv_head, .head_dim = pair_bytes / 4},
          .n_context = n_context,
          .n_prefix = n_prefix};
}

using Rows = std::vector<std::vector<uint32_t>>;

TEST(Select, GlobalKeepsTheBestOfAllHeads) {
  const Scores scores = make_scores(2, 1, 3, {1, 5, 2, 9, 8, 7});
  EXPECT_EQ(select_pairs(scores, 4, Allocation::kGlobal).rows, (Rows{{1}, {0, 1, 2}}));
}

TEST(Select, LayerSharesTheBudgetOverLayers) {
  const Scores scores = make_scores(2, 2, 2, {1, 5, 2, 4, 9, 8, 7, 6});
  EXPECT_EQ(select_pairs(scores, 4, Allocation::kLayer).rows, (Rows{{1}, {1}, {0, 1}, {}}));
}

TEST(Select, UniformSharesTheBudgetOverHeads) {
  const Scores scores = make_scores(1, 2, 3, {1, 5, 2, 9, 8, 7});
  EXPECT_EQ(select_pairs(scores, 2, Allocation::kUniform).rows, (Rows{{1}, {0}}));
  // The remainder goes to the first head.
  EXPECT_EQ(select_pairs(scores, 3, Allocation::kUniform).rows, (Rows{{1, 2}, {0}}));
}

TEST(Select, TiesGoToTheLowerPair) {
  const Scores scores = make_scores(2, 2, 3, std::vector<float>(12, 0.5f));
  EXPECT_EQ(select_pairs(scores, 4, Allocation::kGlobal).rows, (Rows{{0, 1, 2}, {0}, {}, {}}));
}

TEST(Select, NanLosesAndInfinityWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const Scores scores = make_scores(1, 1, 4, {nan, 0, infinity, nan});
  EXPECT_EQ(select_pairs(scores, 2, Allocation::kGlobal).rows, (Rows{{1, 2}}));
  EXPECT_EQ(select_pairs(scores, 3, Allocation::kGlobal).rows, (Rows{{0, 1, 2}}));
}

TEST(Select, CountsAreExactForEveryAllocation) {
  const Scores scores = random_scores(3, 2, 101, 4);
  for (const Allocation allocation :
       {Allocation::kGlobal, Allocation::kLayer, Allocation::kUniform}) {
    for (int64_t n_keep = 0; n_keep <= scores.pairs(); n_keep += 37) {
      EXPECT_EQ(select_pairs(scores, n_keep, allocation).pairs_kept(), n_keep);
    }
    EXPECT_EQ(select_pairs(scores, scores.pairs(), allocation), keep_all(3, 2, 101));
  }
}

TEST(Select, LargerBudgetsKeepWhatSmallerOnesKeep) {
  const Scores scores = random_scores(2, 3, 50, 1);
  for (int64_t n_keep = 1; n_keep < scores.pairs(); n_keep += 29) {
    const KeepSet small = select_pairs(scores, n_keep, Allocation::kGlobal);
    const KeepSet large = select_pairs(scores, n_keep + 1, Allocation::kGlobal);
    for (size_t head = 0; head < small.rows.size(); ++head) {
      EXPECT_TRUE(std::includes(large.rows[head].begin(), large.rows[head].end(),
                                small.rows[head].begin(), small.rows[head].end()));
    }
  }
}

TEST(Budget, RatioRoundsUpWithoutBinarySurprises) {
  EXPECT_EQ(pairs_for_budget({.ratio = 0.3}, context_size(1, 1, 10, 0, 256)), 3);
  EXPECT_EQ(pairs_for_budget({.ratio = 0.3}, context_size(1, 1, 11, 0, 256)), 4);
  EXPECT_EQ(pairs_for_budget({.ratio = 0.1}, context_size(30, 3, 2000, 24, 256)), 18000);
  EXPECT_EQ(pairs_for_budget({.ratio = 1.0}, context_size(30, 3, 2001, 24, 256)), 180090);
  EXPECT_EQ(pairs_for_budget({.ratio = 1e-9}, context_size(1, 1, 10, 0, 256)), 1);
  EXPECT_EQ(pairs_for_budget({}, context_size(1, 1, 100, 0, 256)), 30);
}

TEST(Budget, ThreeWaysToSayTheSameAgree) {
  const int64_t by_ratio = pairs_for_budget({.ratio = 0.25}, context_size(4, 2, 1000, 10, 64));
  EXPECT_EQ(pairs_for_budget({.keep_tokens = 250}, context_size(4, 2, 1000, 10, 64)), by_ratio);
  EXPECT_EQ(pairs_for_budget({.size_bytes = (250 + 10) * 8 * 64}, context_size(4, 2, 1000, 10, 64)),
            by_ratio);
}

TEST(Budget, MoreThanThereIsKeepsAll) {
  EXPECT_EQ(pairs_for_budget({.keep_tokens = 5000}, context_size(2, 2, 100, 0, 64)), 400);
  EXPECT_EQ(pairs_for_budget({.size_bytes = int64_t{1} << 40}, context_size(2, 2, 100, 0, 64)),
            400);
}

TEST(Budget, OutOfRangeIsRefused) {
  for (const Budget& budget :
       {Budget{.ratio = 0.0}, Budget{.ratio = 1.5}, Budget{.ratio = -0.1}, Budget{.ratio = NAN},
        Budget{.keep_tokens = 0}, Budget{.keep_tokens = -5}, Budget{.size_bytes = 0},
        Budget{.size_bytes = 10 * 4 * 64}}) {
    EXPECT_THROW(pairs_for_budget(budget, context_size(2, 2, 100, 10, 64)), Error);
  }
}

TEST(RandomScores, AreAFunctionOfSeedAndPair) {
  EXPECT_EQ(random_scores(2, 2, 10, 7).values, random_scores(2, 2, 10, 7).values);
  EXPECT_NE(random_scores(2, 2, 10, 7).values, random_scores(2, 2, 10, 8).values);
  for (const float value : random_scores(2, 2, 1000, 7).values) {
    EXPECT_GE(value, 0.0f);
    EXPECT_LT(value, 1.0f);
  }
}

}  // namespace
}  // namespace ctxzip
