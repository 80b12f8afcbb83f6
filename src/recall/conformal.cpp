#include "recall/conformal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace ctxzip {
namespace {

// Products of decimal fractions land a little beside the whole number that is meant.
constexpr double kSlack = 1e-9;

}  // namespace

int64_t RecallTarget::min_hard() const {
  return static_cast<int64_t>(std::ceil(2 * recall / (1 - recall) - kSlack));
}

std::string_view phase_name(CalibrationPhase phase) {
  switch (phase) {
    case CalibrationPhase::kProvisional:
      return "provisional";
    case CalibrationPhase::kCalibrated:
      return "calibrated";
    case CalibrationPhase::kStale:
      return "stale";
  }
  return "unknown";
}

std::vector<std::string_view> note_texts(uint32_t notes) {
  constexpr std::pair<CalibrationNote, std::string_view> kTexts[] = {
      {kTooFewHard, "too few hard queries"},
      {kClamped, "z is clamped"},
      {kAllTies, "all hard queries want the same z"},
      {kNoQueries, "no queries were observed"},
      {kPartitionChanged, "rows were closed since"},
      {kSketchCompleted, "fewer query vectors than sketch rows"},
      {kGateOpen, "no entropy gate"},
      {kRowsCapped, "rows of a head are limited"},
      {kTargetMissed, "an audit found less than the target"},
  };
  std::vector<std::string_view> texts;
  for (const auto& [note, text] : kTexts) {
    if ((notes & note) != 0) texts.push_back(text);
  }
  return texts;
}

double wanted_z(double best_kept, double index_score, double certificate) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (certificate > 0) {
    const double z = (best_kept - index_score) / certificate;
    return std::isnan(z) ? infinity : z;
  }
  return index_score >= best_kept ? -infinity : infinity;
}

ConformalZ conformal_z(std::span<double> wanted, const RecallTarget& target, double z_max) {
  ConformalZ result = {.z = z_max, .n = static_cast<int64_t>(wanted.size())};
  if (result.n < target.min_hard()) {
    result.notes = kTooFewHard;
    return result;
  }
  const double place = static_cast<double>(result.n + 1) * target.score_target();
  result.rank = std::min(result.n, static_cast<int64_t>(std::ceil(place - kSlack)));
  std::sort(wanted.begin(), wanted.end());
  const double z = wanted[static_cast<size_t>(result.rank - 1)];
  if (wanted.front() == wanted.back()) result.notes |= kAllTies;
  if (z > z_max) result.notes |= kClamped;
  result.z = std::clamp(z, -z_max, z_max);
  return result;
}

float gate_threshold(std::span<float> hard, std::span<const float> all, const RecallTarget& target,
                     double max_open) {
  const float open = -std::numeric_limits<float>::infinity();
  const double n = static_cast<double>(hard.size());
  const auto place = static_cast<int64_t>(std::floor(target.gate_loss() * (n + 1) + kSlack));
  if (place <= 0) return open;
  // Rows with infinities give entropies that cannot be ordered: they open the gate.
  std::replace_if(
      hard.begin(), hard.end(), [](float x) { return std::isnan(x); }, open);
  std::sort(hard.begin(), hard.end());
  const float threshold = hard[static_cast<size_t>(place - 1)];
  const auto passing =
      std::count_if(all.begin(), all.end(), [&](float entropy) { return entropy >= threshold; });
  const bool useless = static_cast<double>(passing) > max_open * static_cast<double>(all.size());
  return useless ? open : threshold;
}

}  // namespace ctxzip
