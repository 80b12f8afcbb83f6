// Distribution functions and tests for coverage.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace ctxzip::testing {

// P(Beta(a, b) <= x) for whole a and b: at least a of a + b - 1 uniform draws are below x.
inline double beta_cdf(int64_t a, int64_t b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const auto n = static_cast<double>(a + b - 1);
  double sum = 0;
  for (int64_t at = a; at <= a + b - 1; ++at) {
    const auto j = static_cast<double>(at);
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(j + 1) - std::lgamma(n - j + 1) +
                    j * std::log(x) + (n - j) * std::log1p(-x));
  }
  return sum;
}

// The asymptotic p value of Kolmogorov and Smirnov's test of `values` against `cdf`.
template <typename Cdf>
double ks_p_value(std::vector<double> values, const Cdf& cdf) {
  std::sort(values.begin(), values.end());
  const auto n = static_cast<double>(values.size());
  double distance = 0;
  for (size_t at = 0; at < values.size(); ++at) {
    const double expected = cdf(values[at]);
    const auto below = static_cast<double>(at);
    distance = std::max({distance, expected - below / n, (below + 1) / n - expected});
  }
  const double scaled = distance * (std::sqrt(n) + 0.12 + 0.11 / std::sqrt(n));
  double p = 0;
  for (int term = 1; term <= 100; ++term) {
    p += (term % 2 ? 2 : -2) * std::exp(-2.0 * term * term * scaled * scaled);
  }
  return std::clamp(p, 0.0, 1.0);
}

struct Moments {
  double mean;
  double standard_error;
};
inline Moments moments_of(const std::vector<double>& values) {
  double sum = 0;
  double squares = 0;
  for (const double value : values) sum += value;
  const auto n = static_cast<double>(values.size());
  for (const double value : values) squares += (value - sum / n) * (value - sum / n);
  return {sum / n, std::sqrt(squares / (n - 1) / n)};
}

}  // namespace ctxzip::testing
