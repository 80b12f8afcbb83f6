#include "eval/score_statistics.h"

#include <algorithm>

#include "core/fail.h"

namespace ctxzip::eval {
namespace {

// The same weight computed in another batch may differ in its last bits.
constexpr float kRounding = 1e-4F;

size_t bin_of(float weight, size_t n_bins) {
  const double at = static_cast<double>(weight) * static_cast<double>(n_bins);
  return static_cast<size_t>(std::clamp(at, 0.0, static_cast<double>(n_bins - 1)));
}

double share(int64_t part, size_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

std::vector<double> weight_histogram(std::span<const float> weights, size_t n_bins) {
  std::vector<int64_t> counts(n_bins);
  for (const float weight : weights) ++counts[bin_of(weight, n_bins)];
  std::vector<double> shares;
  for (const int64_t count : counts) shares.push_back(share(count, weights.size()));
  return shares;
}

double share_below(std::span<const float> weights, double bound) {
  return share(std::count_if(weights.begin(), weights.end(),
                             [&](float weight) { return static_cast<double>(weight) < bound; }),
               weights.size());
}

JointHistogram joint_histogram(std::span<const float> x, std::span<const float> y, size_t n_bins) {
  CHECK(x.size() == y.size());
  std::vector<int64_t> counts(n_bins * n_bins);
  for (size_t pair = 0; pair < x.size(); ++pair) {
    ++counts[bin_of(y[pair], n_bins) * n_bins + bin_of(x[pair], n_bins)];
  }
  JointHistogram histogram{.n_bins = n_bins};
  for (const int64_t count : counts) histogram.shares.push_back(share(count, x.size()));
  return histogram;
}

Coverage coverage(std::span<const float> x, std::span<const float> y,
                  std::span<const uint8_t> kept_by_x) {
  CHECK(x.size() == y.size() && x.size() == kept_by_x.size());
  Coverage result;
  int64_t below = 0;
  int64_t important_below = 0;
  int64_t important_kept = 0;
  for (size_t pair = 0; pair < x.size(); ++pair) {
    const bool is_below = y[pair] <= x[pair];
    below += is_below;
    if (y[pair] < kImportantWeight) continue;
    ++result.n_important;
    important_below += is_below;
    important_kept += kept_by_x[pair] != 0;
  }
  result.below_diagonal = share(below, x.size());
  if (result.n_important > 0) {
    const auto n_important = static_cast<size_t>(result.n_important);
    result.important_below = share(important_below, n_important);
    result.important_kept = share(important_kept, n_important);
  }
  return result;
}

SourceShare source_share(std::span<const float> from_text, std::span<const float> from_any,
                         std::span<const uint8_t> kept) {
  CHECK(from_text.size() == from_any.size() && from_text.size() == kept.size());
  int64_t all = 0;
  int64_t of_kept = 0;
  size_t n_kept = 0;
  for (size_t pair = 0; pair < from_text.size(); ++pair) {
    const bool by_text = from_text[pair] >= from_any[pair] * (1 - kRounding);
    all += by_text;
    if (kept[pair] == 0) continue;
    ++n_kept;
    of_kept += by_text;
  }
  return {.all = share(all, from_text.size()), .kept = share(of_kept, n_kept)};
}

}  // namespace ctxzip::eval
