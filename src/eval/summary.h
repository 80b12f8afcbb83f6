// From the records of a run to its figures.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/bootstrap.h"
#include "eval/record.h"

namespace ctxzip::eval {

// Figures over fewer questions are shown with a warning.
constexpr int64_t kFewQuestions = 50;
// Below this score of the full cache a ratio to it says nothing.
constexpr double kLowestFullScore = 0.05;

struct MetricSummary {
  std::string name;
  double mean = 0;                        // over questions
  std::optional<Interval> interval = {};  // 95%, contexts resampled; none for a single context
  std::optional<Interval> exact = {};  // 95%, questions independent (Clopper-Pearson); where every
                                       // score of the metric is 0 or 1
  // Mean under the method over mean under the full cache, and its interval with both on the same
  // contexts. Absent without the method "full" or when that scores below kLowestFullScore.
  std::optional<double> relative = {};
  std::optional<Interval> relative_interval = {};
};

struct VariantSummary {
  std::string method;
  double ratio = 1;
  int64_t n_contexts = 0;
  int64_t n_questions = 0;
  int64_t n_cut = 0;  // answers that the limit of tokens ended
  std::vector<MetricSummary> metrics = {};
  // Means over contexts.
  double kv_bytes = 0;
  double kv_bytes_full = 0;
  double context_tokens = 0;
  double prefill_s = 0;
  double score_s = 0;
  double answer_s = 0;  // mean over questions
};

// One for each (method, ratio), in the order of the records.
std::vector<VariantSummary> summarise(std::span<const AnswerRecord> records,
                                      const std::vector<std::string>& metrics, uint64_t seed);

// The full cache's summary if more than a quarter of its answers were cut: scores that look for the
// end of an answer say little then.
const VariantSummary* cut_full_answers(std::span<const VariantSummary> summaries);

// Stable fields: docs/eval.md.
Json to_json(const VariantSummary& summary);

}  // namespace ctxzip::eval
