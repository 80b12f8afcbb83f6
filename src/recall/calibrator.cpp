#include "recall/calibrator.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr int64_t kRowsAtOnce = 64;

bool is_set(std::span<const uint64_t> bits, int64_t row) {
  return bits[static_cast<size_t>(row / 64)] >> row % 64 & 1;
}

size_t float_bytes(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

}  // namespace

int64_t sketch_rank(const MlaShape& shape, const RecallOptions& options) {
  return options.sketch_rank > 0 ? options.sketch_rank : (shape.latent / 8 + 7) / 8 * 8;
}

std::vector<float> principal_directions(std::span<const float* const> vectors, int64_t latent,
                                        int64_t rank) {
  Eigen::MatrixXd samples(static_cast<Eigen::Index>(vectors.size()), latent);
  for (Eigen::Index at = 0; at < samples.rows(); ++at) {
    samples.row(at) = Eigen::Map<const Eigen::RowVectorXf>(vectors[static_cast<size_t>(at)], latent)
                          .cast<double>();
  }
  if (samples.rows() > 0) samples.rowwise() -= samples.colwise().mean().eval();
  const Eigen::MatrixXd covariance = samples.transpose() * samples;
  // Its eigenvectors are an orthonormal basis whatever the rank of the matrix is.
  const Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(covariance);
  if (solver.info() != Eigen::Success) return {};
  std::vector<float> rows(static_cast<size_t>(rank * latent));
  for (int64_t row = 0; row < rank; ++row) {
    const Eigen::VectorXf direction = solver.eigenvectors().col(latent - 1 - row).cast<float>();
    std::copy_n(direction.data(), latent, rows.data() + row * latent);
  }
  return rows;
}

Calibrator::Calibrator(const MlaKernels& kernels, const MlaShape& shape,
                       const RecallOptions& options)
    : kernels_(kernels),
      shape_(shape),
      options_(options),
      rank_(sketch_rank(shape, options)),
      max_steps_(options.max_steps),
      gates_(static_cast<size_t>(shape.n_head), kMinusInfinity) {
  queries_ = Mapping(float_bytes(max_steps_ * shape.n_head * shape.row_dim()));
  scratch_ = Mapping(float_bytes(packed_floats(shape.n_head, shape.row_dim()) +
                                 kRowsAtOnce * mla_padded(shape.n_head) +
                                 projection_scratch_floats(shape, rank_)));
  const auto n = static_cast<size_t>(max_steps_ * shape.n_head);
  best_kept_.resize(n);
  entropy_.resize(n);
  best_archived_.resize(n);
  target_.resize(n);
  clear();
}

// Of the options, whatever is calibrated.
uint32_t Calibrator::standing_notes() const {
  return options_.top_per_head > 0 ? uint32_t{kRowsCapped} : 0u;
}

const float* Calibrator::queries_of(int64_t step) const {
  return reinterpret_cast<const float*>(queries_.data()) + step * shape_.n_head * shape_.row_dim();
}

void Calibrator::observe(const float* queries, const float* best_kept,
                         const float* entropy) noexcept {
  if (!wants_queries()) return;
  const int64_t n = shape_.n_head * shape_.row_dim();
  std::copy_n(queries, n, reinterpret_cast<float*>(queries_.data()) + n_steps_ * n);
  const int64_t at = n_steps_ * shape_.n_head;
  std::copy_n(best_kept, shape_.n_head, best_kept_.begin() + at);
  std::copy_n(entropy, shape_.n_head, entropy_.begin() + at);
  std::fill_n(best_archived_.begin() + at, shape_.n_head, kMinusInfinity);
  std::fill_n(target_.begin() + at, shape_.n_head, 0u);
  ++n_steps_;
}

// Scores the oldest unlabelled step against the next rows of the archive.
void Calibrator::label(const ArchiveView& archive, int64_t max_rows) {
  const int64_t padded = mla_padded(shape_.n_head);
  auto* packed = reinterpret_cast<float*>(scratch_.data());
  float* scores = packed + packed_floats(shape_.n_head, shape_.row_dim());
  kernels_.pack(queries_of(n_labelled_), shape_.n_head, shape_.row_dim(), shape_.row_dim(),
                shape_.scale, packed);
  const int64_t end = std::min(archive.n_rows, labelled_rows_ + max_rows);
  float* best = best_archived_.data() + n_labelled_ * shape_.n_head;
  uint32_t* target = target_.data() + n_labelled_ * shape_.n_head;
  for (int64_t first = labelled_rows_; first < end; first += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, end - first);
    kernels_.products({packed, shape_.n_head, shape_.row_dim()}, archive.rows, first, first + n,
                      scores);
    for (int64_t row = first; row < first + n; ++row) {
      if (is_set(archive.kept, row)) continue;
      const float* row_scores = scores + (row - first) * padded;
      for (int64_t head = 0; head < shape_.n_head; ++head) {
        if (row_scores[head] <= best[head]) continue;
        best[head] = row_scores[head];
        target[head] = static_cast<uint32_t>(row);
      }
    }
  }
  labelled_rows_ = end;
  if (end < archive.n_rows) return;
  labelled_rows_ = 0;
  ++n_labelled_;
}

// Enough steps, and twice the hard queries that the smallest usable z needs, gates being unknown.
bool Calibrator::enough() const {
  if (n_labelled_ >= max_steps_) return true;
  if (n_labelled_ < options_.min_steps) return false;
  int64_t n_hard = 0;
  for (int64_t step = 1; step < n_labelled_; step += 2) {
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      const auto at = static_cast<size_t>(step * shape_.n_head + head);
      n_hard += best_archived_[at] > best_kept_[at] ? 1 : 0;
    }
  }
  return n_hard >= 2 * options_.target.min_hard();
}

SketchBasis Calibrator::fit() const {
  std::vector<const float*> vectors;
  for (int64_t step = 0; step < n_labelled_; step += 2) {
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      vectors.push_back(queries_of(step) + head * shape_.row_dim());
    }
  }
  const std::vector<float> rows = principal_directions(vectors, shape_.latent, rank_);
  if (rows.empty()) return SketchBasis::identity(kernels_, shape_, rank_);
  return SketchBasis(kernels_, shape_, rank_, rows);
}

void Calibrator::finish(const RowIndex& index) {
  std::vector<float> hard;
  std::vector<float> all;
  state_.n_gated = 0;
  const auto is_hard = [&](size_t at) { return best_archived_[at] > best_kept_[at]; };
  for (int64_t head = 0; head < shape_.n_head; ++head) {
    hard.clear();
    all.clear();
    for (int64_t step = 0; step < n_labelled_; step += 2) {
      const auto at = static_cast<size_t>(step * shape_.n_head + head);
      all.push_back(entropy_[at]);
      if (is_hard(at)) hard.push_back(entropy_[at]);
    }
    float& gate = gates_[static_cast<size_t>(head)];
    gate = gate_threshold(hard, all, options_.target);
    if (gate != kMinusInfinity) ++state_.n_gated;
  }

  std::vector<double> wanted;
  auto* packed = reinterpret_cast<float*>(scratch_.data());
  float* scratch = packed + packed_floats(shape_.n_head, shape_.row_dim());
  QueryProjection query(shape_, rank_);
  const IndexRows rows = index.rows();
  const double left = std::sqrt(static_cast<double>(shape_.latent - rank_));
  for (int64_t step = 1; step < n_labelled_; step += 2) {
    kernels_.pack(queries_of(step), shape_.n_head, shape_.row_dim(), shape_.row_dim(), shape_.scale,
                  packed);
    project_queries(kernels_, shape_, index.basis(), queries_of(step),
                    {packed, shape_.n_head, shape_.row_dim()}, scratch, query);
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      const auto at = static_cast<size_t>(step * shape_.n_head + head);
      if (!is_hard(at) || entropy_[at] < gates_[static_cast<size_t>(head)]) continue;
      const double certificate = double{query.residual[static_cast<size_t>(head)]} *
                                 double{rows.residual[target_[at]]} / left;
      const double score =
          entry_score(shape_, rows, query, queries_of(step), head, int64_t{target_[at]});
      wanted.push_back(wanted_z(double{best_kept_[at]}, score, certificate));
    }
  }
  const ConformalZ z = conformal_z(wanted, options_.target, options_.z_max);
  state_.phase = CalibrationPhase::kCalibrated;
  state_.z = z.z;
  state_.rank = z.rank;
  state_.n_hard = z.n;
  state_.n_steps = n_labelled_;
  state_.notes = z.notes | standing_notes() | (completed_ ? kSketchCompleted : 0u) |
                 (state_.n_gated == 0 ? kGateOpen : 0u);
}

bool Calibrator::work(const ArchiveView& archive, RowIndex& index, int64_t max_rows) {
  switch (stage_) {
    case Stage::kObserve:
      if (archive.n_rows == 0 || n_labelled_ == n_steps_) return false;
      label(archive, max_rows);
      if (enough()) stage_ = Stage::kFit;
      return true;
    case Stage::kFit:
      completed_ = (n_labelled_ + 1) / 2 * shape_.n_head < rank_;
      index.start_rebuild(fit());
      stage_ = Stage::kRebuild;
      return true;
    case Stage::kRebuild:
      if (!index.rebuild(archive.rows, max_rows)) return true;
      finish(index);
      stage_ = Stage::kDone;
      return true;
    case Stage::kDone:
      return false;
  }
  return false;
}

void Calibrator::partition_changed(RowIndex& index) {
  if (state_.phase != CalibrationPhase::kProvisional) {
    state_.phase = CalibrationPhase::kStale;
    state_.notes |= kPartitionChanged;
  }
  if (stage_ != Stage::kDone) restart(index);
}

void Calibrator::restart(RowIndex& index) {
  index.cancel_rebuild();
  stage_ = Stage::kObserve;
  n_steps_ = n_labelled_ = labelled_rows_ = 0;
}

void Calibrator::target_missed(RowIndex& index) {
  restart(index);
  state_.notes |= kTargetMissed;
}

void Calibrator::forget_after(int64_t n_steps) {
  CHECK(n_labelled_ <= n_steps);
  n_steps_ = std::min(n_steps_, n_steps);
}

CalibrationRecord Calibrator::record(const RowIndex& index) const {
  CalibrationRecord record;
  record.state = state_;
  record.gates = gates_;
  record.stage = stage_;
  if (stage_ == Stage::kDone) return record;
  record.completed = completed_;
  record.n_labelled = n_labelled_;
  record.labelled_rows = labelled_rows_;
  record.n_rebuilt = index.n_rebuilt();
  const auto n = static_cast<size_t>(n_steps_ * shape_.n_head);
  const float* queries = queries_of(0);
  record.queries.assign(queries, queries + static_cast<int64_t>(n) * shape_.row_dim());
  const auto first = [n](const auto& values) {
    return std::vector(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(n));
  };
  record.best_kept = first(best_kept_);
  record.entropy = first(entropy_);
  record.best_archived = first(best_archived_);
  record.target = first(target_);
  return record;
}

void Calibrator::restore(const CalibrationRecord& record, const ArchiveView& archive,
                         RowIndex& index) {
  state_ = record.state;
  state_.notes = (state_.notes & ~uint32_t{kRowsCapped}) | standing_notes();
  gates_ = record.gates;
  stage_ = record.stage;
  completed_ = record.completed;
  n_steps_ = static_cast<int64_t>(record.best_kept.size()) / shape_.n_head;
  n_labelled_ = record.n_labelled;
  labelled_rows_ = record.labelled_rows;
  CHECK(n_steps_ <= max_steps_ && n_labelled_ <= n_steps_);
  std::copy(record.queries.begin(), record.queries.end(),
            reinterpret_cast<float*>(queries_.data()));
  std::copy(record.best_kept.begin(), record.best_kept.end(), best_kept_.begin());
  std::copy(record.entropy.begin(), record.entropy.end(), entropy_.begin());
  std::copy(record.best_archived.begin(), record.best_archived.end(), best_archived_.begin());
  std::copy(record.target.begin(), record.target.end(), target_.begin());
  if (stage_ != Stage::kRebuild) return;
  index.start_rebuild(fit());
  if (record.n_rebuilt > 0) index.rebuild(archive.rows, record.n_rebuilt);
}

void Calibrator::clear() {
  stage_ = Stage::kObserve;
  n_steps_ = n_labelled_ = labelled_rows_ = 0;
  std::fill(gates_.begin(), gates_.end(), kMinusInfinity);
  state_ = {};
  state_.z = options_.z_max;
  state_.notes |= standing_notes();
}

}  // namespace ctxzip
