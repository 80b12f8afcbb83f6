// Calibration of the index scan: its states, and whether it keeps what it promises.
#include "calibration_fixture.h"
#include "statistics.h"

namespace ctxzip::testing {
namespace {

constexpr int kSets = 200;

TEST_F(CalibrationTest, GoesFromProvisionalToCalibratedToStale) {
  fill(1024);
  EXPECT_EQ(cache_->calibration().phase, CalibrationPhase::kProvisional);
  EXPECT_EQ(cache_->calibration().notes, uint32_t{kNoQueries});
  EXPECT_EQ(cache_->calibration().z, 8);
  EXPECT_FALSE(cache_->calibration().holds());
  calibrate();
  const CalibrationState state = cache_->calibration();
  EXPECT_EQ(state.phase, CalibrationPhase::kCalibrated);
  EXPECT_TRUE(state.holds()) << "notes " << state.notes;
  EXPECT_GE(state.n_hard, 18);
  EXPECT_GE(state.n_steps, 8);
  EXPECT_LT(state.z, 8);
  EXPECT_EQ(state.rank, static_cast<int64_t>(
                            std::ceil(static_cast<double>(state.n_hard + 1) * 0.9 / 0.95 - 1e-9)));

  cache_->append(make_rows(256).data(), 256);
  cache_->maintain();
  EXPECT_EQ(cache_->calibration().phase, CalibrationPhase::kStale);
  EXPECT_TRUE(cache_->calibration().notes & kPartitionChanged);
  EXPECT_FALSE(cache_->calibration().holds());
  EXPECT_EQ(cache_->calibration().z, state.z) << "what was calibrated still serves";

  cache_->target_missed();
  EXPECT_TRUE(cache_->calibration().notes & kTargetMissed);
  rows_.clear();
  rows_ = make_rows(1024);
  calibrate();
  EXPECT_EQ(cache_->calibration().phase, CalibrationPhase::kCalibrated);
}

TEST_F(CalibrationTest, SketchFollowsTheQueries) {
  RecallOptions options = calibrated_options();
  fill(1024, options);
  calibrate();
  ASSERT_TRUE(cache_->calibration().holds());
  EXPECT_LT(cache_->index().basis().defect(), 1e-5);
  const float first = static_cast<const float*>(cache_->index().basis().rows().data)[0];
  EXPECT_NE(first, 1.0f) << "no longer the identity";
}

// The sketches that a rebuild makes slice by slice are those made at once.
TEST_F(CalibrationTest, SlicesMakeTheSameIndex) {
  fill(1024);
  calibrate();
  const RowIndex& index = cache_->index();
  RowIndex once(tuned_mla_kernels(), kTinyShape, index.basis().rank(), 2048);
  const auto* rows = static_cast<const float*>(index.basis().rows().data);
  std::vector<float> v;
  for (int64_t row = 0; row < index.basis().rank(); ++row) {
    v.insert(v.end(), rows + row * 80, rows + row * 80 + 64);
  }
  once.extend(cache_->closed_rows(), 1024);
  once.start_rebuild(SketchBasis(tuned_mla_kernels(), kTinyShape, index.basis().rank(), v));
  int n_slices = 1;
  while (!once.rebuild(cache_->closed_rows(), 100)) ++n_slices;
  EXPECT_EQ(n_slices, 11);
  const auto n = static_cast<size_t>(1024 * index.basis().rank());
  EXPECT_EQ(std::memcmp(once.rows().sketch, index.rows().sketch, n * 2), 0);
  EXPECT_EQ(std::memcmp(once.rows().residual, index.rows().residual, 1024 * 4), 0);
}

TEST_F(CalibrationTest, TooFewQueriesCompleteTheSketch) {
  std::vector<float> directions = normal(3 * 64);
  const std::vector<const float*> vectors = {directions.data(), directions.data() + 64,
                                             directions.data() + 128};
  for (const size_t n : {size_t{0}, size_t{1}, size_t{3}}) {
    const std::vector<float> rows = principal_directions({vectors.data(), n}, 64, 16);
    ASSERT_EQ(rows.size(), size_t{16 * 64});
    const SketchBasis basis(tuned_mla_kernels(), kTinyShape, 16, rows);
    EXPECT_LT(basis.defect(), 1e-5) << n << " vectors";
  }
}

// Nothing in the archive ever wins: the z cannot be known, and that is said.
TEST_F(CalibrationTest, NoHardQueries) {
  RecallOptions options = calibrated_options();
  options.min_steps = 2;
  options.max_steps = 8;
  fill(1024, options);
  const auto* kept = static_cast<const uint16_t*>(cache_->kept_rows().data);
  std::vector<float> q(static_cast<size_t>(kTinyShape.n_head * 80));
  for (int at = 0; at < 10; ++at) {
    for (size_t head = 0; head < 8; ++head) {
      for (size_t dim = 0; dim < 80; ++dim) {
        q[head * 80 + dim] = 3 * half_to_float(kept[(head + 4) * 80 + dim]);
      }
    }
    run(q);
    while (cache_->maintain()) continue;
  }
  const CalibrationState& state = cache_->calibration();
  EXPECT_EQ(state.phase, CalibrationPhase::kCalibrated);
  EXPECT_EQ(state.n_hard, 0);
  EXPECT_TRUE(state.notes & kTooFewHard);
  EXPECT_FALSE(state.holds());
  EXPECT_EQ(state.z, 8);
}

// Queries of zeros tie with every row: nothing is hard, and nothing becomes NaN.
TEST_F(CalibrationTest, AllTies) {
  RecallOptions options = calibrated_options();
  options.max_steps = 8;
  fill(1024, options);
  const std::vector<float> zeros(static_cast<size_t>(kTinyShape.n_head * 80), 0.0f);
  for (int at = 0; at < 10; ++at) {
    for (const float value : run(zeros)) ASSERT_TRUE(std::isfinite(value));
    while (cache_->maintain()) continue;
  }
  EXPECT_EQ(step_->counts().fired_rows, cache_->n_archived()) << "a tie may win";
  EXPECT_FALSE(cache_->calibration().holds());
  EXPECT_FALSE(std::isnan(cache_->calibration().z));
}

// One and the same hard query again and again measures nothing.
TEST_F(CalibrationTest, RepeatedQueriesAreNoted) {
  RecallOptions options = calibrated_options();
  options.max_steps = 40;
  fill(1024, options);
  std::vector<float> q;
  do {
    q = seeking();
  } while (hard_queries(q)[0].target < 0);
  for (int64_t head = 1; head < kTinyShape.n_head; ++head) {
    std::copy_n(q.begin(), 80, q.begin() + head * 80);
  }
  for (int at = 0; at < 41; ++at) {
    run(q);
    while (cache_->maintain()) continue;
  }
  EXPECT_EQ(cache_->calibration().phase, CalibrationPhase::kCalibrated);
  EXPECT_TRUE(cache_->calibration().notes & kAllTies);
  EXPECT_FALSE(cache_->calibration().holds());
}

TEST_F(CalibrationTest, AClampedZIsNoted) {
  RecallOptions options = calibrated_options();
  options.z_max = 1e-3;
  fill(1024, options);
  calibrate();
  EXPECT_EQ(cache_->calibration().phase, CalibrationPhase::kCalibrated);
  EXPECT_TRUE(cache_->calibration().notes & kClamped);
  EXPECT_FALSE(cache_->calibration().holds());
}

// With V and the gates (open here) fixed beforehand and independent queries, the score test's
// coverage over calibration sets is Beta distributed.
TEST_F(CalibrationTest, CoverageOfTheScoreTestIsBeta) {
  constexpr size_t kHard = 40;
  fill(512);
  calibrate();
  std::vector<double> truth;
  while (truth.size() < 12000) add_wanted(seeking(), truth);
  std::sort(truth.begin(), truth.end());
  std::vector<double> coverage;
  ConformalZ last;
  for (int set = 0; set < kSets; ++set) {
    std::vector<double> wanted;
    while (wanted.size() < kHard) add_wanted(seeking(), wanted);
    last = conformal_z({wanted.data(), kHard}, {}, 8);
    ASSERT_EQ(last.notes, 0u);
    const auto found = std::upper_bound(truth.begin(), truth.end(), last.z) - truth.begin();
    coverage.push_back(static_cast<double>(found) / static_cast<double>(truth.size()));
  }
  const Moments moments = moments_of(coverage);
  EXPECT_GE(moments.mean, RecallTarget().score_target() - 2 * moments.standard_error);
  const double p = ks_p_value(coverage, [&](double x) {
    return beta_cdf(last.rank, static_cast<int64_t>(kHard) + 1 - last.rank, x);
  });
  EXPECT_GT(p, 0.001);
}

}  // namespace
}  // namespace ctxzip::testing
