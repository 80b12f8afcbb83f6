#include "support/logits.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/fail.h"

namespace ctxzip::test {
namespace {

std::vector<double> log_probabilities(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - top - std::log(sum));
  return result;
}

double mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

}  // namespace

LogitDifference compare_logits(std::span<const float> expected, std::span<const float> found,
                               int64_t n_vocab) {
  CHECK(expected.size() == found.size() && !expected.empty());
  const size_t width = static_cast<size_t>(n_vocab);
  const double n_rows = static_cast<double>(expected.size() / width);
  LogitDifference result;
  std::vector<double> all_kl;
  for (size_t first = 0; first < expected.size(); first += width) {
    const auto a = expected.subspan(first, width);
    const auto b = found.subspan(first, width);
    const std::vector<double> log_p = log_probabilities(a);
    const std::vector<double> log_q = log_probabilities(b);
    const double shift = mean(a) - mean(b);
    double kl = 0;
    for (size_t id = 0; id < width; ++id) {
      const double p = std::exp(log_p[id]);
      kl += p * (log_p[id] - log_q[id]);
      result.mean_entropy -= p * log_p[id] / n_rows;
      result.max_delta =
          std::max(result.max_delta, std::abs(static_cast<double>(a[id]) - b[id] - shift));
    }
    result.mean_kl += kl / n_rows;
    all_kl.push_back(kl);
    result.max_kl = std::max(result.max_kl, kl);
    const auto best = [](std::span<const float> row) {
      return std::max_element(row.begin(), row.end()) - row.begin();
    };
    if (best(a) == best(b)) result.top1_agreement += 1 / n_rows;
  }
  std::sort(all_kl.begin(), all_kl.end());
  all_kl.resize(all_kl.size() - all_kl.size() / 100);
  for (const double kl : all_kl) result.bulk_kl += kl / static_cast<double>(all_kl.size());
  return result;
}

}  // namespace ctxzip::test
