// Intervals for figures over questions that share contexts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace ctxzip::eval {

struct Interval {
  double low = 0;
  double high = 0;
  bool operator==(const Interval&) const = default;
};

// What one context adds to a ratio of sums. For a mean: the scores' sum over the number of
// questions. For relative performance: the sum under a method over the sum under the full cache.
struct Share {
  double numerator = 0;
  double denominator = 0;
};

constexpr int kResamples = 10'000;

// sum of numerators / sum of denominators; nothing when the denominators sum to 0.
std::optional<double> ratio_of_sums(std::span<const Share> shares);

// The 95% percentile interval of that ratio over resampled contexts. Contexts, not questions, are
// drawn: questions about one context succeed and fail together. Numerator and denominator of a
// context are drawn together (paired), and the same seed draws the same contexts for every call.
// Draws with a zero denominator are left out; nothing when there are fewer than two contexts.
std::optional<Interval> bootstrap_interval(std::span<const Share> shares, uint64_t seed,
                                           int n_resamples = kResamples);

// The exact 95% interval of a proportion, `hits` of n independent trials (Clopper and Pearson,
// 1934).
Interval exact_interval(int64_t hits, int64_t n);

}  // namespace ctxzip::eval
