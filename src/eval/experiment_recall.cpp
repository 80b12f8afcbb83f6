// The recall tier on the rows and queries of a text: what it fetches and what it misses.
#include <fmt/format.h>

#include "core/fail.h"
#include "eval/experiment.h"
#include "eval/recall_policy.h"
#include "eval/recall_statistics.h"
#include "model/model_state.h"

namespace ctxzip::eval {
namespace {

void check_policy(const std::string& name) {
  if (find_policy(name)) return;
  fail(ErrorKind::kInvalidArgument, "'{}' is no recall policy: expected {}", name, kRecallNames);
}

std::vector<double> scores_of(const RecallCounts& counts, int64_t n_rows) {
  const auto per = [](auto sum, int64_t n) {
    return static_cast<double>(sum) / static_cast<double>(n);
  };
  return {per(counts.queries - counts.hard + counts.found, counts.queries),
          per(counts.hard, counts.queries),
          per(counts.found, counts.queries),
          per(counts.fetched_rows, counts.steps * n_rows),
          per(counts.triggered, counts.steps),
          per(counts.bytes_read, counts.bytes_dense),
          per(counts.missed_mass, counts.queries),
          counts.holds ? 1.0 : 0.0};
}

std::vector<AnswerRecord> run_recall(const Model& model, const ExperimentOptions& options,
                                     int64_t number, const CancelToken* cancel) {
  Draw draw(options.seed, context_id(options, number));
  NeedleText text = calibrated_text(options, draw);
  for (const Needle& needle : text.needles) {
    text.tokens.insert(text.tokens.end(), needle.query.begin(), needle.query.end());
  }
  const int64_t first_measured =
      options.length + kCalibratingNeedles * options.n_needles * kItemTokens;
  const TextCapture capture = capture_text(model, text.tokens, cancel);
  const std::vector<std::string> names = layer_names(model, options);
  std::vector<AnswerRecord> records;
  for (const auto& [method, ratio] : experiment_variants(options)) {
    RecallOptions policy = *find_policy(method);
    policy.block_rows = options.block_rows;
    policy.keep_ratio = ratio;
    for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
      const RecallCounts counts = count_recall(capture.shape, capture.layers[layer], options.length,
                                               first_measured, policy);
      AnswerRecord record{.key = {context_id(options, number), names[layer], method, ratio},
                          .scores = scores_of(counts, options.length)};
      record.context_tokens = options.length;
      record.stop_reason = "forced";
      records.push_back(std::move(record));
    }
  }
  return records;
}

}  // namespace

Experiment recall_experiment() {
  return {
      .name = "vestige-recall",
      .summary = "What the recall tier fetches and misses, by ratio and sketch rank",
      .methods = {"evicted", "recall", "recall-sound"},
      .known_methods = kRecallNames,
      .ratios = {0.125, 0.03125},
      .metrics = {"seen", "hard", "recalled", "extra", "triggered", "read", "missed_mass", "holds"},
      .check_method = check_policy,
      .questions = layer_names,
      .run = run_recall};
}

}  // namespace ctxzip::eval
