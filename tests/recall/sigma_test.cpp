// The projection form of sigma against FFTW.
#include "recall/sigma.h"

#include <fftw3.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "ctxzip/error.h"

namespace ctxzip::testing {
namespace {

constexpr unsigned kSeed = 4096;

// Slow drifts, a constant offset and noise; every seventeenth row sticks out.
std::vector<float> branch_rows(int64_t n_rows, int64_t dim, double offset) {
  std::mt19937 random(kSeed);
  std::normal_distribution<double> normal;
  std::vector<float> rows(static_cast<size_t>(n_rows * dim));
  for (int64_t row = 0; row < n_rows; ++row) {
    const double scale = row % 17 == 3 ? 3 : 0.3;
    for (int64_t at = 0; at < dim; ++at) {
      const double drift = std::sin(0.002 * static_cast<double>(row * (at % 5 + 1)));
      rows[static_cast<size_t>(row * dim + at)] =
          static_cast<float>(offset + 2 * drift + scale * normal(random));
    }
  }
  return rows;
}

std::vector<double> fftw_sigma(const std::vector<float>& rows, int64_t n_rows, int64_t dim,
                               int64_t n_bins) {
  const auto n = static_cast<size_t>(n_rows);
  std::vector<double> channel(n);
  std::vector<std::complex<double>> spectrum(n / 2 + 1);
  auto* bins = reinterpret_cast<fftw_complex*>(spectrum.data());
  const int size = static_cast<int>(n_rows);
  fftw_plan forward = fftw_plan_dft_r2c_1d(size, channel.data(), bins, FFTW_ESTIMATE);
  fftw_plan backward = fftw_plan_dft_c2r_1d(size, bins, channel.data(), FFTW_ESTIMATE);
  std::vector<double> squared(n, 0.0);
  for (int64_t at = 0; at < dim; ++at) {
    for (size_t row = 0; row < n; ++row) {
      channel[row] = double{rows[row * static_cast<size_t>(dim) + static_cast<size_t>(at)]};
    }
    fftw_execute(forward);
    std::fill_n(spectrum.begin(), n_bins, 0.0);
    fftw_execute(backward);
    for (size_t row = 0; row < n; ++row) {
      squared[row] += channel[row] * channel[row] / static_cast<double>(n_rows * n_rows);
    }
  }
  fftw_destroy_plan(forward);
  fftw_destroy_plan(backward);
  for (double& value : squared) value = std::sqrt(value);
  return squared;
}

template <typename T>
std::vector<size_t> top(const std::vector<T>& sigma, size_t m) {
  std::vector<size_t> rows(sigma.size());
  std::iota(rows.begin(), rows.end(), size_t{0});
  std::stable_sort(rows.begin(), rows.end(),
                   [&](size_t a, size_t b) { return sigma[a] > sigma[b]; });
  rows.resize(m);
  return rows;
}

void expect_same(const std::vector<float>& sigma, const std::vector<double>& want) {
  for (size_t row = 0; row < want.size(); ++row) {
    ASSERT_NEAR(double{sigma[row]}, want[row], 1e-5 * want[row]) << "row " << row;
  }
  const size_t m = std::max<size_t>(1, want.size() / 32);
  const std::vector<size_t> by_fft = top(want, m);
  const double edge = want[by_fft.back()];
  for (const size_t row : top(sigma, m)) {
    EXPECT_GE(want[row], edge * (1 - 1e-5)) << "row " << row << " is not near a tie";
  }
}

TEST(SigmaTest, ProjectionEqualsFft) {
  for (const int64_t n_rows : {64, 65, 256, 511, 4096}) {
    for (const double offset : {0.0, 10.0}) {
      SCOPED_TRACE(::testing::Message() << n_rows << " rows, offset " << offset);
      const int64_t n_bins = low_pass_bins(n_rows, 16);
      const std::vector<float> rows = branch_rows(n_rows, 64, offset);
      std::vector<float> sigma(static_cast<size_t>(n_rows));
      LowPass(n_rows, n_bins).sigma(rows, 64, sigma);
      expect_same(sigma, fftw_sigma(rows, n_rows, 64, n_bins));
    }
  }
}

TEST(SigmaTest, WholePrefixEqualsFft) {
  for (const int64_t n_rows : {256, 6000}) {
    const int64_t n_bins = low_pass_bins(n_rows, 16);
    const std::vector<float> rows = branch_rows(n_rows, 8, 1);
    std::vector<float> sigma(static_cast<size_t>(n_rows));
    prefix_sigma(rows, 8, n_bins, sigma);
    expect_same(sigma, fftw_sigma(rows, n_rows, 8, n_bins));
  }
}

TEST(SigmaTest, BinsFollowTheBlock) {
  EXPECT_EQ(low_pass_bins(4096, 16), 16);
  EXPECT_EQ(low_pass_bins(512, 16), 2);
  EXPECT_EQ(low_pass_bins(256, 16), 1);
  EXPECT_EQ(low_pass_bins(64, 16), 1);
  EXPECT_EQ(low_pass_bins(4096, 32), 32);
}

TEST(SigmaTest, RefusesMoreBinsThanThereAre) {
  EXPECT_THROW(LowPass(64, 33), Error);
  EXPECT_THROW(LowPass(64, 0), Error);
  EXPECT_NO_THROW(LowPass(64, 32));
}

TEST(SigmaTest, RowsThatAreNotFiniteCountAsImportant) {
  std::vector<float> rows = branch_rows(64, 8, 0);
  rows[5 * 8] = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> sigma(64);
  LowPass(64, 1).sigma(rows, 8, sigma);
  for (const float value : sigma) EXPECT_FALSE(std::isnan(value));
  EXPECT_TRUE(std::isinf(sigma[5]));
}

}  // namespace
}  // namespace ctxzip::testing
