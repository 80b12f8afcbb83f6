#include "recall/sigma.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>
#include <unsupported/Eigen/FFT>

#include "core/fail.h"

namespace ctxzip {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using FloatRows =
    Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>;

float importance(double squared) {
  return std::isfinite(squared) ? static_cast<float>(std::sqrt(squared))
                                : std::numeric_limits<float>::infinity();
}

}  // namespace

int64_t low_pass_bins(int64_t n_rows, double bins_per_4096) {
  const double bins = bins_per_4096 * static_cast<double>(n_rows) / 4096;
  return std::max<int64_t>(1, std::min<int64_t>(std::llround(bins), n_rows / 2));
}

struct LowPass::Basis {
  Matrix waves;  // (2 n_bins - 1, n_rows), orthonormal
};

LowPass::LowPass(int64_t n_rows, int64_t n_bins) {
  if (n_bins < 1 || n_bins > n_rows / 2) {
    fail(ErrorKind::kInvalidArgument,
         "cannot remove {} frequencies from a block of {} rows: expected 1 to half its rows",
         n_bins, n_rows);
  }
  auto basis = std::make_unique<Basis>();
  basis->waves.resize(2 * n_bins - 1, n_rows);
  basis->waves.row(0).setConstant(1 / std::sqrt(static_cast<double>(n_rows)));
  const double norm = std::sqrt(2 / static_cast<double>(n_rows));
  for (int64_t bin = 1; bin < n_bins; ++bin) {
    for (int64_t row = 0; row < n_rows; ++row) {
      // The product is reduced first: angles stay small and exact for long blocks.
      const double turns = static_cast<double>(bin * row % n_rows) / static_cast<double>(n_rows);
      const double angle = 2 * std::numbers::pi * turns;
      basis->waves(2 * bin - 1, row) = norm * std::cos(angle);
      basis->waves(2 * bin, row) = norm * std::sin(angle);
    }
  }
  basis_ = std::move(basis);
}

LowPass::~LowPass() = default;
LowPass::LowPass(LowPass&&) noexcept = default;
LowPass& LowPass::operator=(LowPass&&) noexcept = default;

int64_t LowPass::n_rows() const { return basis_->waves.cols(); }

void LowPass::sigma(std::span<const float> branch, int64_t dim, std::span<float> out) const {
  CHECK(static_cast<int64_t>(branch.size()) == n_rows() * dim);
  CHECK(static_cast<int64_t>(out.size()) == n_rows());
  const Matrix rows = FloatRows(branch.data(), n_rows(), dim).cast<double>();
  const Matrix slow = basis_->waves * rows;
  const Matrix rest = rows - basis_->waves.transpose() * slow;
  for (int64_t row = 0; row < n_rows(); ++row) {
    out[static_cast<size_t>(row)] = importance(rest.row(row).squaredNorm());
  }
}

void prefix_sigma(std::span<const float> branch, int64_t dim, int64_t n_bins,
                  std::span<float> out) {
  const auto n_rows = static_cast<int64_t>(out.size());
  CHECK(static_cast<int64_t>(branch.size()) == n_rows * dim && n_bins >= 1);
  Eigen::FFT<double> fft;
  std::vector<double> channel(out.size());
  std::vector<double> rest(out.size());
  std::vector<std::complex<double>> spectrum;
  std::vector<double> squared(out.size(), 0.0);
  for (int64_t at = 0; at < dim; ++at) {
    for (size_t row = 0; row < channel.size(); ++row) {
      channel[row] = double{branch[row * static_cast<size_t>(dim) + static_cast<size_t>(at)]};
    }
    fft.fwd(spectrum, channel);
    for (int64_t bin = 0; bin < std::min(n_bins, n_rows / 2 + 1); ++bin) {
      spectrum[static_cast<size_t>(bin)] = 0;
      if (bin > 0) spectrum[static_cast<size_t>(n_rows - bin)] = 0;
    }
    fft.inv(rest, spectrum);
    for (size_t row = 0; row < channel.size(); ++row) squared[row] += rest[row] * rest[row];
  }
  std::transform(squared.begin(), squared.end(), out.begin(), importance);
}

}  // namespace ctxzip
