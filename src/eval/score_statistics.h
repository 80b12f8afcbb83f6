// Statistics over the largest attention weights that pairs get in one task, or in two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace ctxzip::eval {

// Shares of the weights (0..1) in `n_bins` bins of equal width; 1 belongs to the last.
std::vector<double> weight_histogram(std::span<const float> weights, size_t n_bins);

double share_below(std::span<const float> weights, double bound);

// Shares of the pairs by their weights in two tasks: (y bin, x bin).
struct JointHistogram {
  size_t n_bins = 0;
  std::vector<double> shares = {};

  double at(size_t x_bin, size_t y_bin) const { return shares[y_bin * n_bins + x_bin]; }
};
JointHistogram joint_histogram(std::span<const float> x, std::span<const float> y, size_t n_bins);

// A pair is important to a task from this weight on.
constexpr float kImportantWeight = 0.1F;

// How well task x accounts for what task y attends to (arXiv 2505.23416, figure 5 and the 2-D
// histograms beside it).
struct Coverage {
  double below_diagonal = 0;  // share of all pairs that y gives no more weight than x does
  int64_t n_important = 0;    // pairs that are important to y
  // Shares of those: given no more weight by y than by x; among x's best pairs. Absent if there are
  // none.
  std::optional<double> important_below = {};
  std::optional<double> important_kept = {};
};
// `kept_by_x`: 1 for each of x's best pairs.
Coverage coverage(std::span<const float> x, std::span<const float> y,
                  std::span<const uint8_t> kept_by_x);

// Whose query gave each pair its largest weight: the repeated text or the prompt before it.
struct SourceShare {
  double all = 0;   // share of the pairs that the text gave it to
  double kept = 0;  // the same among the kept ones
};
// `from_text`: maxima over the text's queries; `from_any`: over those of the prompt too. Ties
// belong to the text.
SourceShare source_share(std::span<const float> from_text, std::span<const float> from_any,
                         std::span<const uint8_t> kept);

}  // namespace ctxzip::eval
