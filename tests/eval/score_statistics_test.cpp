#include "eval/score_statistics.h"

#include <gtest/gtest.h>

namespace ctxzip::eval {
namespace {

// Eight pairs; what they get in two tasks. 1.0000001 is what rounding makes of a sole row.
const std::vector<float> kX{0.0F, 0.05F, 0.3F, 0.3F, 0.6F, 0.9F, 1.0F, 1.0000001F};
const std::vector<float> kY{0.2F, 0.04F, 0.3F, 0.5F, 0.1F, 0.95F, 0.0F, 0.1F};

TEST(ScoreStatistics, HistogramCountsEveryPairOnce) {
  const std::vector<double> shares = weight_histogram(kX, 4);
  EXPECT_EQ(shares, (std::vector<double>{0.25, 0.25, 0.125, 0.375}));
  EXPECT_EQ(weight_histogram({}, 2), (std::vector<double>{0, 0}));
}

TEST(ScoreStatistics, ShareBelow) {
  EXPECT_EQ(share_below(kX, 0.2), 0.25);
  EXPECT_EQ(share_below(kX, 2), 1);
  EXPECT_EQ(share_below(kX, 0), 0);
}

TEST(ScoreStatistics, JointHistogramPutsEachPairIntoOneCell) {
  const JointHistogram joint = joint_histogram(kX, kY, 2);
  EXPECT_EQ(joint.at(0, 0), 0.375);  // pairs 0, 1, 2
  EXPECT_EQ(joint.at(0, 1), 0.125);  // pair 3
  EXPECT_EQ(joint.at(1, 0), 0.375);  // pairs 4, 6, 7
  EXPECT_EQ(joint.at(1, 1), 0.125);  // pair 5
}

TEST(ScoreStatistics, CoverageOfWhatIsImportant) {
  // Important to y: pairs 0, 2, 3, 4, 5, 7. Not above x: 2, 4, 7, and 1 and 6 of the rest.
  const std::vector<uint8_t> kept{0, 0, 0, 1, 1, 1, 1, 1};
  const Coverage found = coverage(kX, kY, kept);
  EXPECT_EQ(found.below_diagonal, 5.0 / 8);
  EXPECT_EQ(found.n_important, 6);
  ASSERT_TRUE(found.important_below && found.important_kept);
  EXPECT_EQ(*found.important_below, 3.0 / 6);
  EXPECT_EQ(*found.important_kept, 4.0 / 6);
}

TEST(ScoreStatistics, NothingImportantHasNoShare) {
  const std::vector<float> low(8, 0.01F);
  const Coverage found = coverage(kX, low, std::vector<uint8_t>(8, 1));
  EXPECT_EQ(found.n_important, 0);
  EXPECT_FALSE(found.important_below);
  EXPECT_FALSE(found.important_kept);
}

TEST(ScoreStatistics, SourceOfTheLargestWeight) {
  // The text wins pairs 0 and 1 (a tie but for rounding), the prompt pair 2; nobody looks at 3.
  const std::vector<float> from_text{0.5F, 0.19999999F, 0.1F, 0.0F};
  const std::vector<float> from_any{0.5F, 0.2F, 0.3F, 0.0F};
  const SourceShare found = source_share(from_text, from_any, std::vector<uint8_t>{1, 0, 1, 0});
  EXPECT_EQ(found.all, 0.75);
  EXPECT_EQ(found.kept, 0.5);
}

}  // namespace
}  // namespace ctxzip::eval
