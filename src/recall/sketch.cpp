#include "recall/sketch.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "kernels/half.h"

namespace ctxzip {
namespace {

constexpr int64_t kRowsAtOnce = 32;

// Relative error of a float32 sum of n products (Higham, gamma_n).
double gamma_of(int64_t n) {
  const double nu = static_cast<double>(n) * 0x1p-24;
  return nu / (1 - nu);
}

float round_up(double value) {
  const auto nearest = static_cast<float>(value);
  return double{nearest} >= value ? nearest
                                  : std::nextafter(nearest, std::numeric_limits<float>::infinity());
}

double norm_of(const float* values, int64_t n) {
  double sum = 0;
  for (int64_t at = 0; at < n; ++at) sum += double{values[at]} * double{values[at]};
  return std::sqrt(sum);
}

double distance(const float* values, const uint16_t* halves, int64_t n) {
  double sum = 0;
  for (int64_t at = 0; at < n; ++at) {
    const double apart = double{values[at]} - double{half_to_float(halves[at])};
    sum += apart * apart;
  }
  return std::sqrt(sum);
}

int64_t padded_floats(int64_t n) { return (n + 15) / 16 * 16; }

void grow(float& limit, double value) { limit = std::max(limit, round_up(value)); }

}  // namespace

SketchBasis::SketchBasis(const MlaKernels& kernels, const MlaShape& shape, int64_t rank,
                         std::span<const float> rows)
    : rank_(rank), latent_(shape.latent), row_dim_(shape.row_dim()) {
  if (rank <= 0 || rank >= latent_ || rank % 8 != 0) {
    fail(ErrorKind::kInvalidArgument,
         "sketch rank {} does not fit a latent of {}: expected a multiple of 8 below it", rank,
         latent_);
  }
  CHECK(static_cast<int64_t>(rows.size()) == rank * latent_);
  const int64_t sizes[4] = {rank * row_dim_, latent_ * rank, packed_floats(rank, latent_),
                            packed_floats(latent_, rank)};
  for (int at = 0; at < 3; ++at) offsets_[at + 1] = offsets_[at] + padded_floats(sizes[at]);
  memory_ = Mapping(static_cast<size_t>(offsets_[3] + sizes[3]) * sizeof(float));
  auto* memory = reinterpret_cast<float*>(memory_.data());
  float* columns = memory + offsets_[1];
  for (int64_t row = 0; row < rank; ++row) {
    const float* from = rows.data() + row * latent_;
    std::copy_n(from, latent_, memory + row * row_dim_);
    for (int64_t dim = 0; dim < latent_; ++dim) columns[dim * rank + row] = from[dim];
  }
  kernels.pack(rows.data(), rank, latent_, latent_, 1, memory + offsets_[2]);
  kernels.pack(columns, latent_, rank, rank, 1, memory + offsets_[3]);
  using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Eigen::MatrixXd v = Eigen::Map<const Matrix>(rows.data(), rank, latent_).cast<double>();
  defect_ = (v * v.transpose() - Eigen::MatrixXd::Identity(rank, rank)).norm();
}

SketchBasis SketchBasis::identity(const MlaKernels& kernels, const MlaShape& shape, int64_t rank) {
  std::vector<float> rows(static_cast<size_t>(std::max<int64_t>(0, rank) * shape.latent));
  for (int64_t row = 0; row < std::min(rank, shape.latent); ++row) {
    rows[static_cast<size_t>(row * shape.latent + row)] = 1;
  }
  return SketchBasis(kernels, shape, rank, rows);
}

const float* SketchBasis::part(int at) const {
  return reinterpret_cast<const float*>(memory_.data()) + offsets_[at];
}
MlaRows SketchBasis::rows() const { return {part(0), RowType::kF32, row_dim_, nullptr}; }
MlaRows SketchBasis::columns() const { return {part(1), RowType::kF32, rank_, nullptr}; }
PackedVectors SketchBasis::packed_rows() const { return {part(2), rank_, latent_}; }
PackedVectors SketchBasis::packed_columns() const { return {part(3), latent_, rank_}; }

int64_t entry_scratch_floats(const SketchBasis& basis) {
  return kRowsAtOnce * (mla_padded(basis.rank()) + mla_padded(basis.latent()));
}

void build_entries(const MlaKernels& kernels, const MlaShape& shape, const SketchBasis& basis,
                   const MlaRows& rows, int64_t begin, int64_t end, const EntryArrays& to,
                   float* scratch) {
  const int64_t rank = basis.rank();
  const double root = std::sqrt(static_cast<double>(rank)) * (1 + basis.defect());
  float* sketches = scratch;
  float* shadows = scratch + kRowsAtOnce * mla_padded(rank);
  std::vector<float> row(static_cast<size_t>(shape.row_dim()));
  for (int64_t first = begin; first < end; first += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, end - first);
    kernels.products(basis.packed_rows(), rows, first, first + n, sketches);
    for (int64_t at = 0; at < n; ++at) {
      to_f16(sketches + at * mla_padded(rank), to.sketch + (first + at) * rank, rank);
    }
    const MlaRows stored = {to.sketch, RowType::kF16, rank, nullptr};
    kernels.products(basis.packed_columns(), stored, first, first + n, shadows);
    for (int64_t at = 0; at < n; ++at) {
      const int64_t entry = first + at;
      const int64_t from = entry * rows.stride;
      for (int64_t dim = 0; dim < shape.row_dim(); ++dim) {
        row[static_cast<size_t>(dim)] =
            rows.type == RowType::kF32
                ? static_cast<const float*>(rows.data)[from + dim]
                : half_to_float(static_cast<const uint16_t*>(rows.data)[from + dim]);
      }
      const float* side = row.data() + shape.latent;
      const uint16_t* sketch = to.sketch + entry * rank;
      const float* shadow = shadows + at * mla_padded(shape.latent);
      to_f16(side, to.side + entry * shape.branch, shape.branch);
      double left = 0;
      for (int64_t dim = 0; dim < shape.latent; ++dim) {
        const double apart = double{row[static_cast<size_t>(dim)]} - double{shadow[dim]};
        left += apart * apart;
      }
      const double latent_norm = norm_of(row.data(), shape.latent);
      double sketch_norm = 0;
      for (int64_t dim = 0; dim < rank; ++dim) {
        const double value = double{half_to_float(sketch[dim])};
        sketch_norm += value * value;
      }
      sketch_norm = std::sqrt(sketch_norm);
      to.residual[entry] =
          round_up(std::sqrt(left) + gamma_of(rank + 2) * (latent_norm + root * sketch_norm));
      EntryErrors& errors = to.errors[entry / kErrorRows];
      if (entry % kErrorRows == 0) errors = {};
      grow(errors.sketch, distance(sketches + at * mla_padded(rank), sketch, rank) +
                              gamma_of(shape.latent + 2) * root * latent_norm);
      grow(errors.side, distance(side, to.side + entry * shape.branch, shape.branch));
      grow(errors.sketch_norm, sketch_norm);
      grow(errors.row_norm, norm_of(row.data(), shape.row_dim()));
    }
  }
}

QueryProjection::QueryProjection(const MlaShape& shape, int64_t rank)
    : sketch(static_cast<size_t>(shape.n_head * rank)),
      residual(static_cast<size_t>(shape.n_head)),
      residual_limit(residual.size()),
      sketch_norm(residual.size()),
      side_norm(residual.size()),
      norm(residual.size()) {}

int64_t projection_scratch_floats(const MlaShape& shape, int64_t rank) {
  return mla_padded(shape.n_head) * (2 * rank + shape.latent);
}

void project_queries(const MlaKernels& kernels, const MlaShape& shape, const SketchBasis& basis,
                     const float* queries, const PackedVectors& packed, float* scratch,
                     QueryProjection& out) noexcept {
  const int64_t rank = basis.rank();
  const int64_t padded = mla_padded(shape.n_head);
  float* sketches = scratch;  // (rank, padded)
  float* packed_sketch = scratch + rank * padded;
  float* shadows = packed_sketch + rank * padded;  // (latent, padded)
  kernels.products(packed, basis.rows(), 0, rank, sketches);
  for (int64_t head = 0; head < shape.n_head; ++head) {
    float* sketch = out.sketch.data() + head * rank;
    for (int64_t at = 0; at < rank; ++at) sketch[at] = sketches[at * padded + head];
  }
  kernels.pack(out.sketch.data(), shape.n_head, rank, rank, 1, packed_sketch);
  kernels.products({packed_sketch, shape.n_head, rank}, basis.columns(), 0, shape.latent, shadows);
  const double root = std::sqrt(static_cast<double>(rank)) * (1 + basis.defect());
  for (int64_t head = 0; head < shape.n_head; ++head) {
    const float* q = queries + head * shape.row_dim();
    double left = 0;
    double latent = 0;
    for (int64_t dim = 0; dim < shape.latent; ++dim) {
      const float value = q[dim] * shape.scale;
      const double apart = double{value} - double{shadows[dim * padded + head]};
      left += apart * apart;
      latent += double{value} * double{value};
    }
    const auto at = static_cast<size_t>(head);
    const double side = norm_of(q + shape.latent, shape.branch) * double{shape.scale};
    out.side_norm[at] = side * (1 + 0x1p-22);
    out.norm[at] = std::sqrt(latent + side * side) * (1 + 0x1p-22);
    out.sketch_norm[at] = norm_of(out.sketch.data() + head * rank, rank);
    out.residual[at] = static_cast<float>(std::sqrt(left));
    out.residual_limit[at] = round_up(
        std::sqrt(left) + gamma_of(rank + 2) * (std::sqrt(latent) + root * out.sketch_norm[at]));
  }
}

double entry_score(const MlaShape& shape, const IndexRows& index, const QueryProjection& query,
                   const float* queries, int64_t head, int64_t row) noexcept {
  const float* side = queries + head * shape.row_dim() + shape.latent;
  const float* sketch = query.sketch.data() + head * index.sketch_dim;
  double score = 0;
  for (int64_t dim = 0; dim < index.side_dim; ++dim) {
    score += double{side[dim] * shape.scale} *
             double{half_to_float(index.side[row * index.side_dim + dim])};
  }
  for (int64_t dim = 0; dim < index.sketch_dim; ++dim) {
    score +=
        double{sketch[dim]} * double{half_to_float(index.sketch[row * index.sketch_dim + dim])};
  }
  return score;
}

double rounding_limit(const MlaShape& shape, const SketchBasis& basis, const QueryProjection& query,
                      int64_t head, const EntryErrors& errors) noexcept {
  const auto at = static_cast<size_t>(head);
  const double rank = static_cast<double>(basis.rank());
  // |V q_c - sketch| of the query itself, a float32 sum.
  const double projected =
      gamma_of(shape.row_dim() + 2) * std::sqrt(rank) * (1 + basis.defect()) * query.norm[at];
  return query.sketch_norm[at] * double{errors.sketch} + query.side_norm[at] * double{errors.side} +
         (2 * basis.defect() * query.sketch_norm[at] + projected) * double{errors.sketch_norm} +
         gamma_of(2 * shape.row_dim() + 16) * query.norm[at] * double{errors.row_norm};
}

}  // namespace ctxzip
