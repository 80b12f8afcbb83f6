#include "recall/conformal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "statistics.h"

namespace ctxzip::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr unsigned kSeed = 90;
constexpr int kSets = 200;

TEST(ConformalTest, OneKnobSplitsInHalves) {
  const RecallTarget target;
  EXPECT_DOUBLE_EQ(target.gate_loss(), 0.05);
  EXPECT_NEAR(target.score_target(), 0.947368, 1e-6);
  EXPECT_EQ(target.min_hard(), 18);
  EXPECT_EQ(RecallTarget{0.5}.min_hard(), 2);
  EXPECT_EQ(RecallTarget{0.8}.min_hard(), 8);
  EXPECT_EQ(RecallTarget{0.95}.min_hard(), 38);
  EXPECT_EQ(RecallTarget{0.99}.min_hard(), 198);
}

// min_hard is the smallest n whose k does not exceed n.
TEST(ConformalTest, MinHardIsTheSmallestThatWorks) {
  for (const double recall : {0.5, 0.8, 0.9, 0.95, 0.99}) {
    const RecallTarget target = {recall};
    const auto place = [&](int64_t n) {
      return std::ceil(static_cast<double>(n + 1) * target.score_target() - 1e-9);
    };
    EXPECT_LE(place(target.min_hard()), static_cast<double>(target.min_hard()));
    EXPECT_GT(place(target.min_hard() - 1), static_cast<double>(target.min_hard() - 1));
  }
}

TEST(ConformalTest, WantedZIsNeverNaN) {
  EXPECT_EQ(wanted_z(3, 1, 4), 0.5);
  EXPECT_EQ(wanted_z(3, 3, 0), -kInfinity);
  EXPECT_EQ(wanted_z(3, 4, 0), -kInfinity);
  EXPECT_EQ(wanted_z(3, 2, 0), kInfinity);
  EXPECT_EQ(wanted_z(kInfinity, kInfinity, 1), kInfinity);
  EXPECT_EQ(wanted_z(3, std::nan(""), 1), kInfinity);
}

TEST(ConformalTest, ZIsAnOrderStatistic) {
  std::vector<double> wanted;
  for (int at = 18; at >= 1; --at) wanted.push_back(at * 0.1);
  const ConformalZ smallest = conformal_z(wanted, {}, 8);
  EXPECT_EQ(smallest.rank, 18);
  EXPECT_DOUBLE_EQ(smallest.z, 1.8);
  EXPECT_EQ(smallest.notes, 0u);
  wanted.clear();
  for (int at = 1; at <= 99; ++at) wanted.push_back(at * 0.01);
  EXPECT_EQ(conformal_z(wanted, {}, 8).rank, 95);
}

TEST(ConformalTest, DegenerateSetsAreNoted) {
  std::vector<double> few(17, 1.0);
  EXPECT_EQ(conformal_z(few, {}, 8).notes, uint32_t{kTooFewHard});
  EXPECT_EQ(conformal_z(few, {}, 8).z, 8);
  EXPECT_EQ(conformal_z({}, {}, 8).z, 8);
  EXPECT_EQ(conformal_z({}, {}, 8).notes, uint32_t{kTooFewHard});

  std::vector<double> ties(40, 1.0);
  EXPECT_EQ(conformal_z(ties, {}, 8).notes, uint32_t{kAllTies});
  std::vector<double> far(40);
  for (size_t at = 0; at < far.size(); ++at) far[at] = static_cast<double>(at);
  EXPECT_EQ(conformal_z(far, {}, 8).notes, uint32_t{kClamped});
  EXPECT_EQ(conformal_z(far, {}, 8).z, 8);

  std::vector<double> found(40, -kInfinity);
  const ConformalZ all_found = conformal_z(found, {}, 8);
  EXPECT_EQ(all_found.z, -8);
  EXPECT_EQ(all_found.notes, uint32_t{kAllTies});
  std::vector<double> lost(40, kInfinity);
  lost[0] = 0;
  EXPECT_EQ(conformal_z(lost, {}, 8).z, 8);
  EXPECT_EQ(conformal_z(lost, {}, 8).notes, uint32_t{kClamped});
}

TEST(ConformalTest, GateIsAnOrderStatisticToo) {
  std::vector<float> hard;
  for (int at = 0; at < 18; ++at) hard.push_back(1 + static_cast<float>(at) * 0.1f);
  const std::vector<float> all(100, 0.0f);
  EXPECT_EQ(gate_threshold(hard, all, {}), -std::numeric_limits<float>::infinity());
  hard.push_back(0.5f);
  EXPECT_EQ(gate_threshold(hard, all, {}), 0.5f);
  const std::vector<float> passing(100, 0.6f);
  EXPECT_EQ(gate_threshold(hard, passing, {}), -std::numeric_limits<float>::infinity())
      << "a gate that most queries pass is off";
  hard[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(gate_threshold(hard, all, {}), -std::numeric_limits<float>::infinity())
      << "an entropy that is no number opens the gate";
  std::vector<float> none;
  EXPECT_EQ(gate_threshold(none, {}, {}), -std::numeric_limits<float>::infinity());
}

// Why 64 steps, 32 of them even, give no head a gate at 0.90: fewer than 19 hard queries are too
// few, and 20 are more than 60% of all.
TEST(ConformalTest, AGateNeedsAFewQueriesOfMany) {
  const auto possible = [](double recall, int n_all) {
    int n_possible = 0;
    for (int n_hard = 0; n_hard <= n_all; ++n_hard) {
      std::vector<float> all(static_cast<size_t>(n_all), 0.0f);  // no easy one would pass
      std::vector<float> hard;
      for (int at = 0; at < n_hard; ++at) {
        hard.push_back(1 + static_cast<float>(at));
        all[static_cast<size_t>(at)] = hard.back();
      }
      n_possible += std::isfinite(gate_threshold(hard, all, {recall})) ? 1 : 0;
    }
    return n_possible;
  };
  EXPECT_EQ(possible(0.9, 31), 0);
  EXPECT_EQ(possible(0.9, 32), 1);
  EXPECT_EQ(possible(0.9, 64), 21);
  EXPECT_EQ(possible(0.8, 32), 12);
}

// With exchangeable queries the share that z is enough for is Beta(k, n + 1 - k) distributed.
TEST(ConformalTest, CoverageOfIndependentQueriesIsBeta) {
  std::mt19937_64 random(kSeed);
  std::gamma_distribution<double> wanted(2, 0.5);
  const RecallTarget target;
  std::vector<double> truth(400'000);
  for (double& value : truth) value = wanted(random);
  std::sort(truth.begin(), truth.end());
  for (const int64_t n : {18, 40, 150}) {
    std::vector<double> coverage;
    ConformalZ last;
    for (int set = 0; set < kSets; ++set) {
      std::vector<double> sample(static_cast<size_t>(n));
      for (double& value : sample) value = wanted(random);
      last = conformal_z(sample, target, 8);
      ASSERT_EQ(last.notes, 0u);
      const auto found = std::upper_bound(truth.begin(), truth.end(), last.z) - truth.begin();
      coverage.push_back(static_cast<double>(found) / static_cast<double>(truth.size()));
    }
    const Moments moments = moments_of(coverage);
    EXPECT_GE(moments.mean, target.score_target() - 2 * moments.standard_error) << n;
    const double p =
        ks_p_value(coverage, [&](double x) { return beta_cdf(last.rank, n + 1 - last.rank, x); });
    EXPECT_GT(p, 0.001) << n << " hard queries, rank " << last.rank;
  }
}

// Queries of one context share what makes the context hard: still exchangeable, so the mean stays,
// but coverage is no longer Beta distributed.
TEST(ConformalTest, CoverageOfDependentQueriesKeepsItsMean) {
  std::mt19937_64 random(kSeed + 1);
  std::normal_distribution<double> normal;
  const RecallTarget target;
  std::vector<double> coverage;
  ConformalZ last;
  for (int set = 0; set < kSets; ++set) {
    const double shared = normal(random);
    const double spread = std::exp(normal(random));
    const auto draw = [&] { return 0.1 * (shared + spread * normal(random)); };
    std::vector<double> sample(40);
    for (double& value : sample) value = draw();
    last = conformal_z(sample, target, 8);
    int found = 0;
    for (int fresh = 0; fresh < 4000; ++fresh) found += draw() <= last.z ? 1 : 0;
    coverage.push_back(found / 4000.0);
  }
  const Moments moments = moments_of(coverage);
  EXPECT_GE(moments.mean, target.score_target() - 2 * moments.standard_error);
}

// Heads pooled over steps are exchangeable only within a step. What clustering costs is below one
// step's share, 1 / (steps + 1); docs/vestigekv.md says so.
TEST(ConformalTest, ClusteringByStepCostsLessThanOneStep) {
  std::mt19937_64 random(kSeed + 2);
  std::normal_distribution<double> normal;
  const RecallTarget target;
  constexpr int kSteps = 32;
  constexpr int kHeads = 20;
  const auto add_step = [&](std::vector<double>& to) {
    const double shared = normal(random);
    for (int head = 0; head < kHeads; ++head) to.push_back(shared + 0.5 * normal(random));
  };
  std::vector<double> coverage;
  for (int set = 0; set < kSets; ++set) {
    std::vector<double> sample;
    for (int step = 0; step < kSteps; ++step) add_step(sample);
    const ConformalZ z = conformal_z(sample, target, 8);
    std::vector<double> fresh;
    for (int step = 0; step < 200; ++step) add_step(fresh);
    const auto found =
        std::count_if(fresh.begin(), fresh.end(), [&](double value) { return value <= z.z; });
    coverage.push_back(static_cast<double>(found) / static_cast<double>(fresh.size()));
  }
  const Moments moments = moments_of(coverage);
  EXPECT_GE(moments.mean, target.score_target() - 1.0 / (kSteps + 1) - 2 * moments.standard_error);
}

}  // namespace
}  // namespace ctxzip::testing
