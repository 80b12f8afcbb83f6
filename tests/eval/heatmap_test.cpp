#include "eval/heatmap.h"

#include <gtest/gtest.h>

namespace ctxzip::eval {
namespace {

Scores scores(int64_t n_layer, int64_t n_kv_head, std::vector<float> values) {
  const auto n_context = static_cast<int64_t>(values.size()) / (n_layer * n_kv_head);
  return {.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .values = values};
}

// Big-endian number at `at` of a PNG.
int64_t number(const std::vector<std::byte>& png, size_t at) {
  int64_t value = 0;
  for (size_t byte = at; byte < at + 4; ++byte)
    value = value << 8 | std::to_integer<int>(png[byte]);
  return value;
}

TEST(HeatMap, RanksAreSharesOfPairsWithLowerScores) {
  const HeatMap map = rank_map(scores(2, 1, {3, -1, 7, 7}));
  EXPECT_EQ(map.n_head, 2);
  EXPECT_EQ(map.n_part, 2);
  EXPECT_EQ(map.values, (std::vector<float>{0.25F, 0, 0.5F, 0.5F}));
}

TEST(HeatMap, LongTextsAreCutIntoParts) {
  const int64_t n = 2 * kMapParts;
  std::vector<float> values(static_cast<size_t>(n), 0.25F);
  values[5] = 0.75F;
  const HeatMap weights = weight_map(scores(1, 1, values));
  EXPECT_EQ(weights.n_part, kMapParts);
  EXPECT_EQ(weights.values[1], 0.25F);
  EXPECT_EQ(weights.values[2], 0.75F);  // the larger of tokens 4 and 5
  const HeatMap ranks = rank_map(scores(1, 1, values));
  EXPECT_EQ(ranks.values[1], 0);
  // The mean of both: no pair is below token 4, all others are below token 5.
  EXPECT_NEAR(ranks.values[2], (n - 1) / (2.0 * static_cast<double>(n)), 1e-6);
}

TEST(HeatMap, PicturesOfSeveralMapsStandBelowEachOther) {
  const HeatMap narrow = rank_map(scores(2, 2, std::vector<float>(4 * 3)));
  const HeatMap wide = weight_map(scores(1, 1, std::vector<float>(700)));
  const std::vector<HeatMap> maps{narrow, wide};
  const PictureSize first = heatmap_size(narrow);
  const PictureSize second = heatmap_size(wide);
  EXPECT_EQ(first.width, 600);
  EXPECT_EQ(second.width, 700);
  const std::vector<std::byte> png = heatmap_png(maps);
  EXPECT_EQ(number(png, 16), 700);
  EXPECT_GT(number(png, 20), first.height + second.height);
  EXPECT_EQ(number(heatmap_png({&narrow, 1}), 20), first.height);
}

TEST(HeatMap, ColoursRunFromDarkToBright) {
  EXPECT_EQ(heatmap_colour(0), "#002051");
  EXPECT_EQ(heatmap_colour(1), "#fde737");
  EXPECT_EQ(heatmap_colour(7), heatmap_colour(1));
  EXPECT_EQ(heatmap_colour(-1), heatmap_colour(0));
}

}  // namespace
}  // namespace ctxzip::eval
