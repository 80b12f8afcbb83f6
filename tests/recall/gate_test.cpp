// Entropy gates: when there are any, what a closed one spares, and whether gate and score together
// keep what was promised.
#include "calibration_fixture.h"
#include "statistics.h"

namespace ctxzip::testing {
namespace {

constexpr int kSets = 200;
// At the default target a gate needs 19 hard queries of its head's in even steps, at most 60% of
// them all; 64 even steps with 4 hard queries of 10 give most heads one.
constexpr int64_t kLongSteps = 128;

RecallOptions long_observation() {
  RecallOptions options = calibrated_options();
  options.min_steps = options.max_steps = kLongSteps;
  return options;
}

class GateTest : public CalibrationTest {
 protected:
  // Each head looks for a kept row, or (`share` of them) for any row. Who finds what it looks for
  // among the kept rows attends to little else: its entropy is low, and a gate can tell.
  std::vector<float> mixed(float share = 0.4f) {
    std::vector<float> q = make_queries(kTinyShape, 0.5f);
    std::uniform_real_distribution<float> one(0, 1);
    std::uniform_real_distribution<float> strength(0.6f, 1.2f);
    std::uniform_int_distribution<int64_t> any(0, n_ - 1);
    std::uniform_int_distribution<size_t> any_kept(0, cache_->kept().size() - 1);
    const int64_t dim = kTinyShape.row_dim();
    for (int64_t head = 0; head < kTinyShape.n_head; ++head) {
      const int64_t row =
          one(random_) < share ? any(random_) : int64_t{cache_->kept()[any_kept(random_)]};
      const float times = strength(random_);
      for (int64_t at = 0; at < dim; ++at) {
        q[static_cast<size_t>(head * dim + at)] +=
            times * half_to_float(rows_[static_cast<size_t>(row * dim + at)]);
      }
    }
    return q;
  }

  void calibrate_anew(const RecallOptions& options) {
    cache_->clear();
    cache_->append(rows_.data(), n_);
    while (cache_->maintain()) continue;
    calibrate(options.max_steps + 1, [this] { return mixed(); });
  }

  // Entropy of the softmax over kept rows and tail, in double precision.
  double kept_entropy(const std::vector<float>& q, int64_t head) const {
    double total = 0;
    double weighted = 0;
    for (const int64_t row : near_rows(*cache_)) {
      const double of = score(kTinyShape, q, head, rows_.data() + row * kTinyShape.row_dim());
      total += std::exp(of);
      weighted += std::exp(of) * of;
    }
    return std::log(total) - weighted / total;
  }

  // Whether a head's gate lets it scan; the gate's float and this double may differ in rounding.
  bool is_open(const std::vector<float>& q, int64_t head) const {
    return kept_entropy(q, head) >= double{cache_->gates()[static_cast<size_t>(head)]} - 1e-5;
  }

  // By how much a head's best limit for an archived row exceeds its best kept score: from 0 on it
  // fires, if it scans.
  double margin(const std::vector<float>& q, const QueryProjection& query, int64_t head,
                float best_kept, int64_t row) const {
    return entry_score(kTinyShape, cache_->index().rows(), query, q.data(), head, row) +
           cache_->calibration().z * certificate(query, head, row) - double{best_kept};
  }

  struct Coverage {
    double found = 0;     // share of the hard queries whose best row was attended to
    double shut_out = 0;  // share of the hard queries that their gate kept from scanning
    int64_t n_hard = 0;
  };
  Coverage coverage(int n_steps) {
    Coverage result;
    for (int at = 0; at < n_steps; ++at) {
      const std::vector<float> q = mixed();
      run(q);
      const std::vector<Hard> queries = hard_queries(q);
      for (int64_t head = 0; head < kTinyShape.n_head; ++head) {
        const int64_t target = queries[static_cast<size_t>(head)].target;
        if (target < 0) continue;
        ++result.n_hard;
        const std::span<const uint32_t> fetched = step_->fetched();
        if (std::binary_search(fetched.begin(), fetched.end(), target)) ++result.found;
        if (!is_open(q, head)) ++result.shut_out;
      }
    }
    result.found /= static_cast<double>(result.n_hard);
    result.shut_out /= static_cast<double>(result.n_hard);
    return result;
  }
};

// With the options as they are an observation ends before any of several heads has the samples.
TEST_F(GateTest, TheUsualObservationIsTooShortForAGate) {
  const RecallOptions options = calibrated_options();
  fill(256, options);
  for (int set = 0; set < 20; ++set) {
    calibrate_anew(options);
    ASSERT_TRUE(cache_->calibration().holds());
    EXPECT_EQ(cache_->calibration().n_gated, 0);
    EXPECT_TRUE(cache_->calibration().notes & kGateOpen);
    run(mixed());
    EXPECT_EQ(step_->counts().open_heads, kTinyShape.n_head);
  }
}

TEST_F(GateTest, AClosedGateKeepsItsHeadFromScanning) {
  fill(256, long_observation());
  calibrate_anew(long_observation());
  ASSERT_TRUE(cache_->calibration().holds());
  ASSERT_GT(cache_->calibration().n_gated, 0);
  EXPECT_FALSE(cache_->calibration().notes & kGateOpen);
  constexpr double kRounding = 1e-4;
  int64_t n_closed = 0;
  int64_t n_spared = 0;
  for (int at = 0; at < 300; ++at) {
    const std::vector<float> q = mixed(0.2f);
    run(q);
    const QueryProjection query = project(q);
    const std::vector<Hard> hard = hard_queries(q);
    std::vector<double> scanned(static_cast<size_t>(n_), -1);
    std::vector<double> spared = scanned;
    int64_t n_open = 0;
    for (int64_t head = 0; head < kTinyShape.n_head; ++head) {
      const bool open = is_open(q, head);
      n_open += open ? 1 : 0;
      for (int64_t row = 0; row < n_; ++row) {
        double& most = (open ? scanned : spared)[static_cast<size_t>(row)];
        most =
            std::max(most, margin(q, query, head, hard[static_cast<size_t>(head)].best_kept, row));
      }
    }
    EXPECT_EQ(step_->counts().open_heads, n_open);
    EXPECT_EQ(step_->counts().scanned_entries, n_open > 0 ? n_ : 0);
    n_closed += kTinyShape.n_head - n_open;
    for (const uint32_t row : cache_->kept()) scanned[row] = spared[row] = -1;
    for (int64_t row = 0; row < n_; ++row) {
      const std::span<const uint32_t> fetched = step_->fetched();
      const bool fired = std::binary_search(fetched.begin(), fetched.end(), row);
      const double most = scanned[static_cast<size_t>(row)];
      if (std::abs(most) > kRounding) {
        ASSERT_EQ(fired, most > 0) << "row " << row;
      }
      if (!fired && spared[static_cast<size_t>(row)] > kRounding) ++n_spared;
    }
  }
  EXPECT_GT(n_closed, 300) << "nothing is tested";
  EXPECT_GT(n_spared, 0) << "no closed head would have fired";
}

// Queries that find what they look for among the kept rows, all heads gated: no entry is read, and
// the step is one without recall.
TEST_F(GateTest, AStepOfClosedHeadsReadsNoIndex) {
  fill(256, long_observation());
  do {
    calibrate_anew(long_observation());
  } while (cache_->calibration().n_gated < kTinyShape.n_head);
  int n_shut = 0;
  for (int at = 0; at < 200; ++at) {
    const std::vector<float> q = mixed(0);
    const std::vector<float> out = run(q);
    if (step_->counts().open_heads > 0) continue;
    ++n_shut;
    EXPECT_EQ(step_->counts().scanned_entries, 0);
    EXPECT_EQ(step_->counts().fired_rows, 0);
    EXPECT_EQ(step_->counts().bytes_read,
              step_->counts().near_rows * static_cast<int64_t>(cache_->row_bytes()));
    cache_->set_recall(false);
    EXPECT_EQ(run(q), out);
    cache_->set_recall(true);
  }
  EXPECT_GT(n_shut, 20);
}

// The promise is of gate and score together, over independent calibrations, most heads having a
// gate that is closed more often than not.
TEST_F(GateTest, EndToEndCoverage) {
  fill(256, long_observation());
  std::vector<double> found;
  std::vector<double> shut_out;
  int64_t n_hard = 0;
  int64_t n_gated = 0;
  const RecallTarget target;
  for (int set = 0; set < kSets; ++set) {
    calibrate_anew(long_observation());
    ASSERT_TRUE(cache_->calibration().holds());
    ASSERT_EQ(cache_->calibration().n_steps, kLongSteps);
    ASSERT_GT(cache_->calibration().n_gated, 0);
    n_gated += cache_->calibration().n_gated;
    const Coverage of_set = coverage(25);
    n_hard += of_set.n_hard;
    found.push_back(of_set.found);
    shut_out.push_back(of_set.shut_out);
  }
  EXPECT_GT(n_hard, 1000);
  EXPECT_GT(n_gated, kSets * kTinyShape.n_head / 2);
  const Moments recall = moments_of(found);
  EXPECT_GE(recall.mean, target.recall - 2 * recall.standard_error);
  // A closed head's row may be found by another: the gate's own loss is what it may be.
  const Moments loss = moments_of(shut_out);
  EXPECT_GT(loss.mean, 0) << "no gate was ever in the way";
  EXPECT_LE(loss.mean, target.gate_loss() + 2 * loss.standard_error);
  RecordProperty("mean_recall", std::to_string(recall.mean));
  RecordProperty("mean_gate_loss", std::to_string(loss.mean));
  RecordProperty("gated_heads", std::to_string(static_cast<double>(n_gated) / kSets));
}

// As above with the options as they are: all gates are open, the score test alone decides.
TEST_F(GateTest, EndToEndCoverageOfOpenGates) {
  const RecallOptions options = calibrated_options();
  fill(256, options);
  std::vector<double> found;
  for (int set = 0; set < kSets; ++set) {
    calibrate_anew(options);
    ASSERT_TRUE(cache_->calibration().holds());
    const Coverage of_set = coverage(25);
    EXPECT_EQ(of_set.shut_out, 0);
    found.push_back(of_set.found);
  }
  const Moments recall = moments_of(found);
  EXPECT_GE(recall.mean, RecallTarget().recall - 2 * recall.standard_error);
  RecordProperty("mean_recall", std::to_string(recall.mean));
}

}  // namespace
}  // namespace ctxzip::testing
