// States of a cache: turning back to one, and going on from one.
#include "recall/recall_state.h"

#include "recall_cache_fixture.h"

namespace ctxzip::testing {
namespace {

class RecallStateTest : public RecallCacheTest {
 protected:
  const int64_t dim_ = kTinyShape.row_dim();

  // Rows [begin, end), a step after each, so that the cache observes and calibrates.
  std::vector<float> grow(RecallCache& cache, DecodeStep& step, int64_t begin, int64_t end) {
    std::vector<float> all;
    for (int64_t row = begin; row < end; ++row) {
      cache.append(rows_.data() + row * dim_, 1);
      const std::vector<float> out =
          attend(step, cache, queries_[static_cast<size_t>(row) % queries_.size()]);
      all.insert(all.end(), out.begin(), out.end());
      cache.maintain(100);
    }
    return all;
  }
  std::unique_ptr<RecallCache> grown(const RecallOptions& options, int64_t n) {
    auto cache = make_cache(options);
    DecodeStep step(*cache);
    cache->append(rows_.data(), 900);
    cache->maintain();
    grow(*cache, step, 900, n);
    return cache;
  }

  RecallStateTest() : rows_(make_rows(1600)) {
    for (int at = 0; at < 97; ++at) queries_.push_back(seeking_queries(rows_, 700));
  }

  std::vector<uint16_t> rows_;
  std::vector<std::vector<float>> queries_;
};

TEST_F(RecallStateTest, ClosingAsItFillsOrAtTheEndIsTheSame) {
  for (const WindowForm form : {WindowForm::kBlock, WindowForm::kPrefix}) {
    RecallOptions options = tiny_options();
    options.window = form;
    const auto often = make_cache(options);
    const auto once = make_cache(options);
    for (int64_t row = 0; row < 1600; row += 50) {
      often->append(rows_.data() + row * dim_, 50);
      often->maintain();
    }
    once->append(rows_.data(), 1600);
    once->maintain();
    EXPECT_EQ(often->state(), once->state());
    EXPECT_EQ(often->n_closed(), 6 * 256);
  }
}

// Before, during and after calibration, with a close in between.
TEST_F(RecallStateTest, GoingOnFromAStateChangesNoBit) {
  for (const bool sound : {false, true}) {
    for (const int64_t n : {901, 912, 930, 960, 1020, 1100}) {
      SCOPED_TRACE(n);
      RecallOptions options = tiny_options();
      options.sound = sound;
      const auto cache = grown(options, n);
      const RecallState state = cache->state();
      EXPECT_EQ(state_problem(state, kTinyShape, options), std::nullopt);
      const auto restored = make_cache(options);
      restored->restore(state, rows_.data());
      EXPECT_EQ(restored->state(), state);
      DecodeStep step(*cache);
      DecodeStep again(*restored);
      const std::vector<float> expected = grow(*cache, step, n, n + 300);
      ASSERT_EQ(grow(*restored, again, n, n + 300), expected);
      EXPECT_EQ(restored->state(), cache->state());
      cache->rewind(state);
      EXPECT_EQ(cache->state(), state);
      DecodeStep rewound(*cache);
      ASSERT_EQ(grow(*cache, rewound, n, n + 300), expected);
    }
  }
}

TEST_F(RecallStateTest, TheStagesAreAllMet) {
  std::vector<CalibrationStage> met;
  const auto cache = make_cache(tiny_options());
  DecodeStep step(*cache);
  cache->append(rows_.data(), 900);
  cache->maintain();
  for (int64_t row = 900; row < 1020; ++row) {
    grow(*cache, step, row, row + 1);
    met.push_back(cache->state().calibration.stage);
  }
  for (const CalibrationStage stage : {CalibrationStage::kObserve, CalibrationStage::kFit,
                                       CalibrationStage::kRebuild, CalibrationStage::kDone}) {
    EXPECT_NE(std::find(met.begin(), met.end(), stage), met.end()) << static_cast<int>(stage);
  }
}

TEST_F(RecallStateTest, StatesThatDoNotFitAreNamed) {
  const RecallOptions options = tiny_options();
  const RecallState good = grown(options, 930)->state();
  const auto problem = [&](auto spoil) {
    RecallState state = good;
    spoil(state);
    return state_problem(state, kTinyShape, options).value_or("");
  };
  EXPECT_EQ(problem([](RecallState&) {}), "");
  EXPECT_NE(problem([](RecallState& state) { state.sigma.pop_back(); }), "");
  EXPECT_NE(problem([](RecallState& state) { state.kept.pop_back(); }), "");
  EXPECT_NE(problem([](RecallState& state) { state.basis[3] = std::nanf(""); }), "");
  EXPECT_NE(problem([](RecallState& state) { state.calibration.gates.clear(); }), "");
  EXPECT_NE(problem([](RecallState& state) { state.calibration.entropy.pop_back(); }), "");
  EXPECT_NE(problem([](RecallState& state) { state.calibration.target[0] = 768; }), "");
  EXPECT_NE(problem([](RecallState& state) { state.calibration.n_labelled = 1000; }), "");
}

TEST_F(RecallStateTest, TakingBackTheNewestRow) {
  const auto cache = grown(tiny_options(), 930);
  const RecallState state = cache->state();
  DecodeStep step(*cache);
  cache->append(rows_.data() + 930 * dim_, 1);
  attend(step, *cache, queries_[0]);
  EXPECT_NE(cache->state(), state);
  cache->take_back(930,
                   static_cast<int64_t>(state.calibration.best_kept.size()) / kTinyShape.n_head);
  EXPECT_EQ(cache->state(), state);
}

}  // namespace
}  // namespace ctxzip::testing
