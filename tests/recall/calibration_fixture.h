// A cache that decodes until it is calibrated, and which of its queries were hard.
#pragma once

#include <Eigen/Dense>
#include <functional>
#include <memory>

#include "recall/recall_cache.h"
#include "recall_fixture.h"

namespace ctxzip::testing {

inline RecallOptions calibrated_options() {
  RecallOptions options;
  options.block_rows = 256;
  options.keep_ratio = 1.0 / 32;
  return options;
}

class CalibrationTest : public RecallTest {
 protected:
  // A cache with n closed rows.
  void fill(int64_t n, const RecallOptions& options = calibrated_options()) {
    rows_ = make_rows(n);
    n_ = n;
    cache_ = std::make_unique<RecallCache>(tuned_mla_kernels(), kTinyShape, RowType::kF16, 2 * n,
                                           options);
    cache_->append(rows_.data(), n);
    while (cache_->maintain()) continue;
    step_ = std::make_unique<DecodeStep>(*cache_);
  }

  std::vector<float> seeking() { return seeking_queries(rows_, n_); }
  std::vector<float> run(const std::vector<float>& q) { return attend(*step_, *cache_, q); }

  // Decodes until a calibration is there, at most max_steps.
  void calibrate(int max_steps = 70) {
    calibrate(max_steps, [this] { return seeking(); });
  }
  void calibrate(int64_t max_steps, const std::function<std::vector<float>()>& next) {
    for (int64_t at = 0; at < max_steps; ++at) {
      run(next());
      while (cache_->maintain()) continue;
      if (cache_->calibration().phase == CalibrationPhase::kCalibrated) return;
    }
  }

  struct Hard {
    int64_t target = -1;  // the best row, if it is archived
    float best_kept = 0;
  };
  // (head)
  std::vector<Hard> hard_queries(const std::vector<float>& q) const {
    using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    if (values_.rows() != n_) {
      values_.resize(n_, kTinyShape.row_dim());
      std::transform(rows_.begin(), rows_.end(), values_.data(), half_to_float);
    }
    const Eigen::Map<const Matrix> queries(q.data(), kTinyShape.n_head, kTinyShape.row_dim());
    const Matrix scores = kTinyShape.scale * values_ * queries.transpose();
    std::vector<Hard> found(static_cast<size_t>(kTinyShape.n_head));
    for (int64_t head = 0; head < kTinyShape.n_head; ++head) {
      Hard& hard = found[static_cast<size_t>(head)];
      Eigen::Index best = 0;
      const float largest = scores.col(head).maxCoeff(&best);
      hard.best_kept = -std::numeric_limits<float>::infinity();
      for (const int64_t row : near_rows(*cache_)) {
        hard.best_kept = std::max(hard.best_kept, scores(row, head));
      }
      if (hard.best_kept < largest) hard.target = best;
    }
    return found;
  }

  QueryProjection project(const std::vector<float>& q) const {
    const SketchBasis& basis = cache_->index().basis();
    const int64_t dim = kTinyShape.row_dim();
    const int64_t n_packed = packed_floats(kTinyShape.n_head, dim);
    const Mapping memory(
        static_cast<size_t>(n_packed + projection_scratch_floats(kTinyShape, basis.rank())) *
        sizeof(float));
    auto* packed = reinterpret_cast<float*>(memory.data());
    tuned_mla_kernels().pack(q.data(), kTinyShape.n_head, dim, dim, kTinyShape.scale, packed);
    QueryProjection query(kTinyShape, basis.rank());
    project_queries(tuned_mla_kernels(), kTinyShape, basis, q.data(),
                    {packed, kTinyShape.n_head, dim}, packed + n_packed, query);
    return query;
  }

  // What z multiplies in the limit of one row's score.
  double certificate(const QueryProjection& query, int64_t head, int64_t row) const {
    const RowIndex& index = cache_->index();
    return double{query.residual[static_cast<size_t>(head)]} * double{index.rows().residual[row]} /
           std::sqrt(static_cast<double>(kTinyShape.latent - index.basis().rank()));
  }

  // The z that each hard query of one step wants of the index as it is.
  void add_wanted(const std::vector<float>& q, std::vector<double>& wanted) const {
    const QueryProjection query = project(q);
    const std::vector<Hard> hard = hard_queries(q);
    for (int64_t head = 0; head < kTinyShape.n_head; ++head) {
      const auto at = static_cast<size_t>(head);
      if (hard[at].target < 0) continue;
      const double score =
          entry_score(kTinyShape, cache_->index().rows(), query, q.data(), head, hard[at].target);
      wanted.push_back(
          wanted_z(double{hard[at].best_kept}, score, certificate(query, head, hard[at].target)));
    }
  }

  std::vector<uint16_t> rows_;
  int64_t n_ = 0;
  std::unique_ptr<RecallCache> cache_;
  std::unique_ptr<DecodeStep> step_;
  mutable Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor> values_;
};

}  // namespace ctxzip::testing
