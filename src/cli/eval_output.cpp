#include "cli/eval_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/byte_size.h"
#include "cli/human.h"

namespace ctxzip::cli {
namespace {

std::string interval_text(const std::optional<eval::Interval>& interval) {
  return interval ? fmt::format(" [{:.2f}, {:.2f}]", interval->low, interval->high) : "";
}

std::string relative_text(const eval::MetricSummary& metric) {
  if (!metric.relative) return "-";
  return fmt::format("{:.2f}", *metric.relative) + interval_text(metric.relative_interval);
}

bool has_full(const eval::EvalRun& run) {
  const auto keeps_all = [](const eval::EvalMethod* method) { return !method->scores; };
  return std::any_of(run.options.methods.begin(), run.options.methods.end(), keeps_all);
}

}  // namespace

std::vector<std::string> eval_warnings(const eval::EvalRun& run, const ModelInfo& model) {
  std::vector<std::string> warnings;
  if (run.n_questions() < eval::kFewQuestions) {
    warnings.push_back(
        fmt::format("{} questions are few: differences may be chance; use {} or more",
                    run.n_questions(), eval::kFewQuestions));
  }
  if (!run.options.chat_template) {
    warnings.emplace_back("without the chat template an instruct model scores lower than it can");
  } else if (!model.has_chat_template) {
    warnings.emplace_back("the model has no chat template: prompts are plain text");
  }
  if (!has_full(run)) {
    warnings.emplace_back("without the method full there is nothing to be relative to");
  }
  if (run.n_skipped > 0) {
    warnings.push_back(
        fmt::format("{} questions of the data have no answer and are left out", run.n_skipped));
  }
  const auto n_contexts = static_cast<int64_t>(run.contexts.size());
  if (run.options.n_contexts > n_contexts) {
    warnings.push_back(fmt::format("the data has {} contexts, {} were asked for", n_contexts,
                                   run.options.n_contexts));
  }
  return warnings;
}

std::string eval_table(const EvalResult& result) {
  const eval::EvalRun& run = result.run;
  std::string table = fmt::format("{} on {}: {} contexts, {} questions\n\n", run.task.name,
                                  run.header.at("model").at("name").get<std::string>(),
                                  format_count(static_cast<int64_t>(run.contexts.size())),
                                  format_count(run.n_questions()));
  table += fmt::format("{:<10} {:>6}", "method", "ratio");
  for (const std::string& metric : run.metric_names()) table += fmt::format("  {:>9}", metric);
  table += fmt::format("  {:<18}  {:>10}\n", "relative [95%]", "KV cache");
  for (const eval::VariantSummary& variant : result.variants) {
    table += fmt::format("{:<10} {:>6}", variant.method, fmt::format("{}", variant.ratio));
    for (const eval::MetricSummary& metric : variant.metrics) {
      table += fmt::format("  {:>9.3f}", metric.mean);
    }
    table += fmt::format("  {:<18}  {:>10}\n", relative_text(variant.metrics.front()),
                         format_bytes(std::llround(variant.kv_bytes)));
  }
  table += fmt::format("\nrelative: {} divided by that of full, contexts resampled; answers: {}\n",
                       run.metric_names().front(), result.log);
  return table;
}

Json eval_json(const EvalResult& result) {
  Json json = result.run.header;
  json.erase("record");
  json["log"] = result.log;
  json["n_contexts_before"] = result.n_contexts_before;
  json["n_skipped"] = result.run.n_skipped;
  json["warnings"] = result.warnings;
  json["results"] = Json::array();
  for (const eval::VariantSummary& variant : result.variants) {
    json["results"].push_back(eval::to_json(variant));
  }
  return json;
}

}  // namespace ctxzip::cli
