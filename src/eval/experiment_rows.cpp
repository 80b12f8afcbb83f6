// What ranks rows, seen from the queries themselves: which part of a row makes it win, how few rows
// ever win, and whether digests of whole pages would find them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/fail.h"
#include "eval/experiment.h"
#include "eval/needle_text.h"
#include "eval/row_statistics.h"
#include "model/model_state.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kBestPages = 8;

HitCount branch_alone(const QuerySet& set) {
  return same_best_row(set, set.shape.latent, set.shape.row_dim());
}
HitCount content_alone(const QuerySet& set) { return same_best_row(set, 0, set.shape.latent); }
HitCount winners(const QuerySet& set) { return winning_rows(set.shape, set.layer, set.n_rows); }
HitCount pages_mean(const QuerySet& set) { return pages_found(set, PageRadius::kMean, kBestPages); }
HitCount pages_largest(const QuerySet& set) {
  return pages_found(set, PageRadius::kLargest, kBestPages);
}

struct Statistic {
  std::string_view name;
  HitCount (*count)(const QuerySet& set);
};
constexpr std::array kStatistics{
    Statistic{"branch-alone", branch_alone}, Statistic{"content-alone", content_alone},
    Statistic{"winning-rows", winners}, Statistic{"pages-mean", pages_mean},
    Statistic{"pages-largest", pages_largest}};
constexpr const char* kStatisticNames =
    "branch-alone, content-alone, winning-rows, pages-mean, pages-largest";

const Statistic* find_statistic(std::string_view name) {
  const auto* const found = std::find_if(kStatistics.begin(), kStatistics.end(),
                                         [&](const Statistic& one) { return one.name == name; });
  return found == kStatistics.end() ? nullptr : found;
}

void check_statistic(const std::string& name) {
  if (find_statistic(name) != nullptr) return;
  fail(ErrorKind::kInvalidArgument, "'{}' is no statistic of rows: expected {}", name,
       kStatisticNames);
}

std::vector<AnswerRecord> run_statistics(const Model& model, const ExperimentOptions& options,
                                         int64_t number, const CancelToken* cancel) {
  Draw draw(options.seed, context_id(options, number));
  NeedleText text = make_needle_text({.n_tokens = options.length,
                                      .n_needles = options.n_needles,
                                      .n_distractors = options.n_needles,
                                      .block_rows = options.block_rows},
                                     draw);
  std::vector<int64_t> asked;  // tokens whose successor is a value
  for (const Needle& needle : text.needles) {
    const auto first = static_cast<int64_t>(text.tokens.size());
    for (int64_t at = kGivenTokens; at < kItemTokens; ++at) asked.push_back(first + at - 1);
    text.tokens.insert(text.tokens.end(), needle.query.begin(), needle.query.end());
  }
  const TextCapture capture = capture_text(model, text.tokens, cancel);
  const std::vector<std::string> names = layer_names(model, options);
  std::vector<AnswerRecord> records;
  for (const auto& [method, ratio] : experiment_variants(options)) {
    for (size_t layer = 0; layer < capture.layers.size(); ++layer) {
      const HitCount count = find_statistic(method)->count(
          {capture.shape, capture.layers[layer], asked, options.length});
      AnswerRecord record{.key = {context_id(options, number), names[layer], method, ratio},
                          .scores = {count.share(), static_cast<double>(count.n)}};
      record.context_tokens = options.length;
      record.stop_reason = "forced";
      records.push_back(std::move(record));
    }
  }
  return records;
}

}  // namespace

Experiment row_experiment() {
  return {
      .name = "vestige-rows",
      .summary = "Which part of a row makes it win, how few rows win, and digests of pages",
      .methods = {"branch-alone", "content-alone", "winning-rows", "pages-mean", "pages-largest"},
      .known_methods = kStatisticNames,
      .ratios = {1},
      .metrics = {"share", "of"},
      .check_method = check_statistic,
      .questions = layer_names,
      .run = run_statistics};
}

}  // namespace ctxzip::eval
