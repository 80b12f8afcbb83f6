#include "eval/bootstrap.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace ctxzip::eval {
namespace {

TEST(RatioOfSums, WeighsByDenominator) {
  EXPECT_EQ(ratio_of_sums(std::vector<Share>{{1, 1}, {0, 3}}), 0.25);
  EXPECT_EQ(ratio_of_sums(std::vector<Share>{{1, 0}}), std::nullopt);
  EXPECT_EQ(ratio_of_sums(std::vector<Share>{}), std::nullopt);
}

TEST(Bootstrap, SameSeedSameInterval) {
  const std::vector<Share> shares{{1, 2}, {2, 2}, {0, 2}, {1, 1}, {3, 5}};
  const auto first = bootstrap_interval(shares, 7);
  ASSERT_TRUE(first);
  EXPECT_EQ(first, bootstrap_interval(shares, 7));
  EXPECT_LT(first->low, *ratio_of_sums(shares));
  EXPECT_GT(first->high, *ratio_of_sums(shares));
}

TEST(Bootstrap, EqualContextsLeaveNoDoubt) {
  EXPECT_EQ(bootstrap_interval(std::vector<Share>(10, {3, 4}), 1), (Interval{0.75, 0.75}));
}

TEST(Bootstrap, PairedMethodsOfEqualScoresHaveRatioOne) {
  // Each context differs from the others, but method and full agree on each.
  const std::vector<Share> shares{{1, 1}, {7, 7}, {2, 2}, {5, 5}};
  EXPECT_EQ(bootstrap_interval(shares, 3), (Interval{1, 1}));
}

TEST(Bootstrap, TooLittleToResample) {
  EXPECT_EQ(bootstrap_interval(std::vector<Share>{}, 0), std::nullopt);
  EXPECT_EQ(bootstrap_interval(std::vector<Share>{{1, 1}}, 0), std::nullopt);
  EXPECT_EQ(bootstrap_interval(std::vector<Share>{{0, 0}, {0, 0}}, 0), std::nullopt);
}

// Questions of a context succeed or fail together with probability 0.6: the interval must hold 0.6
// in about 95% of the experiments. 30 contexts make a percentile interval a little short.
TEST(Bootstrap, CoversTheTrueValue) {
  constexpr int kExperiments = 200;
  constexpr uint64_t kTruePercent = 60;
  std::mt19937_64 random(20);
  int n_covered = 0;
  for (int experiment = 0; experiment < kExperiments; ++experiment) {
    std::vector<Share> shares;
    for (int context = 0; context < 30; ++context) {
      const double n = 1 + static_cast<double>(random() % 5);
      const bool right = random() % 100 < kTruePercent;
      shares.push_back({right ? n : 0, n});
    }
    const auto interval = bootstrap_interval(shares, static_cast<uint64_t>(experiment), 1000);
    n_covered += interval->low <= kTruePercent / 100.0 && kTruePercent / 100.0 <= interval->high;
  }
  EXPECT_GE(n_covered, 0.88 * kExperiments);
  EXPECT_LE(n_covered, 0.99 * kExperiments);
}

// Against tables of Clopper and Pearson's limits.
TEST(ExactInterval, KnownLimits) {
  const auto expect = [](int64_t hits, int64_t n, double low, double high) {
    const Interval interval = exact_interval(hits, n);
    EXPECT_NEAR(interval.low, low, 5e-5) << hits << " of " << n;
    EXPECT_NEAR(interval.high, high, 5e-5) << hits << " of " << n;
  };
  expect(0, 10, 0, 0.3085);
  expect(10, 10, 0.6915, 1);
  expect(5, 10, 0.1871, 0.8129);
  expect(95, 100, 0.8872, 0.9836);
  expect(1, 1, 0.025, 1);
}

}  // namespace
}  // namespace ctxzip::eval
