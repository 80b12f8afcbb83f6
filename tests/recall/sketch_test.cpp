// Lemma 2 with every rounding, against scores in double precision.
#include "recall/sketch.h"

#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ctxzip/error.h"
#include "kernels/half.h"

namespace ctxzip::testing {
namespace {

constexpr unsigned kSeed = 22;
constexpr int64_t kRows = 2048;
const MlaShape kShape = {.latent = 512, .branch = 64, .n_head = 32, .scale = 0.0722f};

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using DoubleMatrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

class SketchTest : public ::testing::TestWithParam<RowType> {
 protected:
  SketchTest() : random_(kSeed) {}

  Matrix normal(int64_t n_rows, int64_t n_cols, float sigma = 1) {
    std::normal_distribution<float> distribution(0, sigma);
    return Matrix::NullaryExpr(n_rows, n_cols, [&] { return distribution(random_); });
  }

  SketchBasis random_basis(int64_t rank) {
    const Eigen::MatrixXd square = normal(512, rank).cast<double>();
    const Eigen::HouseholderQR<Eigen::MatrixXd> qr(square);
    const Eigen::MatrixXd q = qr.householderQ() * Eigen::MatrixXd::Identity(512, rank);
    v_ = q.transpose().cast<float>();
    return SketchBasis(tuned_mla_kernels(), kShape, rank,
                       {v_.data(), static_cast<size_t>(v_.size())});
  }

  void store(const Matrix& rows) {
    values_ = rows;
    if (GetParam() == RowType::kF16) {
      halves_.resize(static_cast<size_t>(rows.size()));
      to_f16(rows.data(), halves_.data(), rows.size());
      for (int64_t at = 0; at < rows.size(); ++at) {
        values_.data()[at] = half_to_float(halves_[static_cast<size_t>(at)]);
      }
      rows_ = {halves_.data(), RowType::kF16, 576, nullptr};
    } else {
      rows_ = {values_.data(), RowType::kF32, 576, nullptr};
    }
  }

  void build(const SketchBasis& basis) {
    const int64_t n = values_.rows();
    side_.assign(static_cast<size_t>(n * 64), 0);
    sketch_.assign(static_cast<size_t>(n * basis.rank()), 0);
    residual_.assign(static_cast<size_t>(n), 0);
    errors_.assign(static_cast<size_t>((n + kErrorRows - 1) / kErrorRows), {});
    const Mapping scratch(static_cast<size_t>(entry_scratch_floats(basis)) * sizeof(float));
    build_entries(tuned_mla_kernels(), kShape, basis, rows_, 0, n,
                  {side_.data(), sketch_.data(), residual_.data(), errors_.data()},
                  reinterpret_cast<float*>(scratch.data()));
    index_ = {side_.data(), sketch_.data(), residual_.data(), 64, basis.rank()};
  }

  // Checks every pair of the 32 queries and the rows; returns the largest share of the limit used.
  double expect_within_limits(const SketchBasis& basis, const Matrix& queries) {
    const MlaKernels& kernels = tuned_mla_kernels();
    const auto padded = static_cast<size_t>(mla_padded(32));
    const int64_t dim = 64 + basis.rank();
    Mapping memory(static_cast<size_t>(packed_floats(32, 576) + packed_floats(32, dim) +
                                       projection_scratch_floats(kShape, basis.rank())) *
                   sizeof(float));
    auto* packed = reinterpret_cast<float*>(memory.data());
    float* packed_index = packed + packed_floats(32, 576);
    float* scratch = packed_index + packed_floats(32, dim);
    kernels.pack(queries.data(), 32, 576, 576, kShape.scale, packed);
    QueryProjection query(kShape, basis.rank());
    project_queries(kernels, kShape, basis, queries.data(), {packed, 32, 576}, scratch, query);
    Matrix index_queries(32, dim);
    for (int64_t head = 0; head < 32; ++head) {
      index_queries.row(head).head(64) = queries.row(head).tail(64) * kShape.scale;
      for (int64_t at = 0; at < basis.rank(); ++at) {
        index_queries(head, 64 + at) = query.sketch[static_cast<size_t>(head * basis.rank() + at)];
      }
    }
    kernels.pack(index_queries.data(), 32, dim, dim, 1, packed_index);
    const std::vector<float> zeros(padded, 0.0f);
    const std::vector<float> endless(padded, std::numeric_limits<float>::infinity());
    const ScanQueries plain = {{packed_index, 32, dim}, zeros.data(), endless.data()};
    std::vector<float> scores(static_cast<size_t>(values_.rows()) * padded);
    kernels.scan_scores(plain, index_, 0, values_.rows(), scores.data());
    std::vector<float> slopes(padded, 0.0f);
    std::copy(query.residual_limit.begin(), query.residual_limit.end(), slopes.begin());
    const ScanQueries upper = {{packed_index, 32, dim}, slopes.data(), endless.data()};
    std::vector<float> uppers(scores.size());
    kernels.scan_scores(upper, index_, 0, values_.rows(), uppers.data());
    const DoubleMatrix exact =
        double{kShape.scale} * values_.cast<double>() * queries.cast<double>().transpose();
    double largest = 0;
    for (int64_t row = 0; row < values_.rows(); ++row) {
      for (int64_t head = 0; head < 32; ++head) {
        const auto at = static_cast<size_t>(row) * padded + static_cast<size_t>(head);
        const double rounding = rounding_limit(kShape, basis, query, head,
                                               errors_[static_cast<size_t>(row / kErrorRows)]);
        const double limit = double{query.residual_limit[static_cast<size_t>(head)]} *
                                 double{residual_[static_cast<size_t>(row)]} +
                             rounding;
        const double missed = std::abs(exact(row, head) - double{scores[at]});
        if (!(missed <= limit) || !(double{uppers[at]} + rounding >= exact(row, head))) {
          ADD_FAILURE() << "row " << row << ", head " << head << ": " << missed << " > " << limit;
          return largest;
        }
        largest = std::max(largest, missed / limit);
      }
    }
    n_pairs_ += values_.rows() * 32;
    return largest;
  }

  std::mt19937 random_;
  Matrix v_;
  Matrix values_;
  std::vector<uint16_t> halves_;
  MlaRows rows_;
  std::vector<uint16_t> side_;
  std::vector<uint16_t> sketch_;
  std::vector<float> residual_;
  std::vector<EntryErrors> errors_;
  IndexRows index_;
  int64_t n_pairs_ = 0;
};

TEST_P(SketchTest, MillionsOfPairsStayWithinTheLimit) {
  for (const int64_t rank : {64, 200}) {
    const SketchBasis basis = random_basis(rank);
    for (const float sigma : {0.01f, 1.0f, 30.0f}) {
      store(normal(kRows, 576, sigma));
      build(basis);
      for (int set = 0; set < 3; ++set) {
        expect_within_limits(basis, normal(32, 576, set % 2 ? 1 : 20));
      }
    }
  }
  EXPECT_GT(n_pairs_, 1'100'000);
}

// Queries along what the sketch leaves out of a row use the whole limit; queries in and across the
// sketched space have nothing but rounding.
TEST_P(SketchTest, AdversarialQueries) {
  const SketchBasis basis = random_basis(64);
  store(normal(512, 576));
  build(basis);
  const Matrix latent = values_.leftCols(512);
  const Matrix inside = latent * v_.transpose() * v_;
  double largest = 0;
  for (int set = 0; set < 16; ++set) {
    Matrix along = Matrix::Zero(32, 576);
    Matrix within = normal(32, 576);
    for (int64_t head = 0; head < 32; ++head) {
      const int64_t row = set * 32 + head;
      along.row(head).head(512) = (head % 2 ? 7 : -7) * (latent.row(row) - inside.row(row));
      within.row(head).head(512) = inside.row(row);
    }
    largest = std::max(largest, expect_within_limits(basis, along));
    expect_within_limits(basis, within);
    expect_within_limits(basis, Matrix(along + 1e-4f * within));
  }
  EXPECT_GT(largest, 0.99) << "the limit is reached by queries along the residual";
  EXPECT_LE(largest, 1.0);
}

TEST_P(SketchTest, RowsInsideTheSketchAndTinyOrZeroRows) {
  const SketchBasis basis = random_basis(64);
  Matrix rows = Matrix::Zero(kErrorRows + 40, 576);
  rows.topRows(64).leftCols(512) = normal(64, 64) * v_;
  rows.middleRows(64, 64) = normal(64, 576, 1e-6f);
  rows.middleRows(128, 64) = normal(64, 576, 1000);
  store(rows);
  build(basis);
  expect_within_limits(basis, normal(32, 576));
  expect_within_limits(basis, Matrix(Matrix::Zero(32, 576)));
}

TEST_P(SketchTest, IdentityBasisKeepsTheFirstCoordinates) {
  const SketchBasis basis = SketchBasis::identity(tuned_mla_kernels(), kShape, 64);
  EXPECT_EQ(basis.defect(), 0);
  store(normal(300, 576));
  build(basis);
  expect_within_limits(basis, normal(32, 576));
  EXPECT_THROW(SketchBasis::identity(tuned_mla_kernels(), kShape, 512), Error);
  EXPECT_THROW(SketchBasis::identity(tuned_mla_kernels(), kShape, 0), Error);
  EXPECT_THROW(SketchBasis::identity(tuned_mla_kernels(), kShape, 20), Error);
}

INSTANTIATE_TEST_SUITE_P(Rows, SketchTest, ::testing::Values(RowType::kF16, RowType::kF32),
                         [](const auto& info) { return std::string(row_type_name(info.param)); });

}  // namespace
}  // namespace ctxzip::testing
