#include "eval/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/fail.h"
#include "eval/draw.h"

namespace ctxzip::eval {
namespace {

// Between the two nearest ranks of ascending values.
double quantile(const std::vector<double>& values, double q) {
  const double rank = q * static_cast<double>(values.size() - 1);
  const size_t below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, values.size() - 1);
  const double weight = rank - static_cast<double>(below);
  return values[below] * (1 - weight) + values[above] * weight;
}

}  // namespace

std::optional<double> ratio_of_sums(std::span<const Share> shares) {
  Share sum;
  for (const Share& share : shares) {
    sum.numerator += share.numerator;
    sum.denominator += share.denominator;
  }
  if (sum.denominator == 0) return std::nullopt;
  return sum.numerator / sum.denominator;
}

std::optional<Interval> bootstrap_interval(std::span<const Share> shares, uint64_t seed,
                                           int n_resamples) {
  if (shares.size() < 2) return std::nullopt;
  Draw draw(seed);
  std::vector<double> ratios;
  ratios.reserve(static_cast<size_t>(n_resamples));
  for (int resample = 0; resample < n_resamples; ++resample) {
    Share sum;
    for (size_t n = 0; n < shares.size(); ++n) {
      const Share& share = draw.one_of(shares);
      sum.numerator += share.numerator;
      sum.denominator += share.denominator;
    }
    if (sum.denominator != 0) ratios.push_back(sum.numerator / sum.denominator);
  }
  if (ratios.empty()) return std::nullopt;
  std::sort(ratios.begin(), ratios.end());
  return Interval{quantile(ratios, 0.025), quantile(ratios, 0.975)};
}

namespace {

// The chance of `hits` or more of n trials.
double chance_of_more(int64_t hits, int64_t n, double p) {
  if (p <= 0 || p >= 1) return p <= 0 && hits > 0 ? 0 : 1;
  double sum = 0;
  for (int64_t k = hits; k <= n; ++k) {
    const auto a = static_cast<double>(k);
    const auto b = static_cast<double>(n - k);
    sum += std::exp(std::lgamma(a + b + 1) - std::lgamma(a + 1) - std::lgamma(b + 1) +
                    a * std::log(p) + b * std::log1p(-p));
  }
  return sum;
}

// The p at which `hits` or more have this chance; it grows with p.
double proportion_with(int64_t hits, int64_t n, double chance) {
  double low = 0;
  double high = 1;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (chance_of_more(hits, n, middle) < chance ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

Interval exact_interval(int64_t hits, int64_t n) {
  CHECK(hits >= 0 && hits <= n);
  constexpr double kTail = 0.025;
  return {.low = hits == 0 ? 0 : proportion_with(hits, n, kTail),
          .high = hits == n ? 1 : proportion_with(hits + 1, n, 1 - kTail)};
}

}  // namespace ctxzip::eval
