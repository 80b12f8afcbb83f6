#include "eval/bootstrap.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "eval/draw.h"
#include "recall/audit.h"

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

Interval exact_interval(int64_t hits, int64_t n) {
  const ProportionLimits limits = clopper_pearson(hits, n);
  return {.low = limits.lower, .high = limits.upper};
}

}  // namespace ctxzip::eval
