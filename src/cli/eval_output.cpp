#include "cli/eval_output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/byte_size.h"
#include "cli/human.h"
#include "eval/experiment.h"

namespace ctxzip::cli {
namespace {

std::string interval_text(const std::optional<eval::Interval>& interval) {
  return interval ? fmt::format(" [{:.2f}, {:.2f}]", interval->low, interval->high) : "";
}

std::string relative_text(const eval::MetricSummary& metric) {
  if (!metric.relative) return "-";
  return fmt::format("{:.2f}", *metric.relative) + interval_text(metric.relative_interval);
}

// What the data is, without the description of its fields.
std::string data_text(const eval::Task& task) {
  const std::string_view format = task.data_format == nullptr ? "" : task.data_format;
  const std::string_view short_format = format.substr(0, format.find(':'));
  switch (task.need) {
    case eval::DataNeed::kFile:
    case eval::DataNeed::kFileOrFolder:
      return fmt::format("--data {}", short_format);
    case eval::DataNeed::kFileOrGenerated:
      return fmt::format("generated, or --data {}", short_format);
    case eval::DataNeed::kGenerated:
      break;
  }
  return "generated";
}

// Columns of a metric: its name may be longer than its figures.
size_t metric_width(const std::string& name) { return std::max<size_t>(9, name.size()); }

bool has_full(const eval::EvalRun& run) {
  const auto keeps_all = [](const eval::EvalMethod* method) { return !method->scores; };
  return std::any_of(run.options.methods.begin(), run.options.methods.end(), keeps_all);
}

}  // namespace

std::optional<std::string> few_questions_warning(int64_t n_questions) {
  if (n_questions >= eval::kFewQuestions) return std::nullopt;
  return fmt::format("{} questions are few: differences may be chance; use {} or more", n_questions,
                     eval::kFewQuestions);
}

std::vector<std::string> eval_warnings(const eval::EvalRun& run, const ModelInfo& model) {
  std::vector<std::string> warnings;
  if (const auto few = few_questions_warning(run.n_questions())) warnings.push_back(*few);
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
  if (run.n_long > 0) {
    warnings.push_back(
        fmt::format("{} contexts have no room in the model and are left out", run.n_long));
  }
  if (run.n_outgrown > 0) {
    warnings.push_back(fmt::format(
        "in {} contexts a question is longer than the context: there is little to compress",
        run.n_outgrown));
  }
  const auto n_contexts = static_cast<int64_t>(run.contexts.size());
  if (run.options.n_contexts > n_contexts) {
    warnings.push_back(fmt::format("the data has {} contexts, {} were asked for", n_contexts,
                                   run.options.n_contexts));
  }
  return warnings;
}

std::optional<std::string> cut_answers_warning(const std::vector<eval::VariantSummary>& variants) {
  const eval::VariantSummary* full = eval::cut_full_answers(variants);
  if (full == nullptr) return std::nullopt;
  return fmt::format(
      "{} of {} answers with the full cache were cut by the limit of tokens: scores may be too "
      "low; "
      "raise --max-tokens (in another log)",
      full->n_cut, full->n_questions);
}

std::string task_list() {
  std::string text;
  std::string group;
  for (const eval::Task& task : eval::tasks()) {
    if (group != task.group) {
      group = task.group;
      text += fmt::format("{}{}\n", text.empty() ? "" : "\n", group);
    }
    text += fmt::format("  {:<22} {}\n  {:<22}   metric {}; {}\n", task.name, task.summary, "",
                        task.metrics.front().name, data_text(task));
  }
  text += "\nexperiments on rows (models vestige-... of `ctxzip model list`)\n";
  for (const eval::Experiment& experiment : eval::experiments()) {
    text += fmt::format("  {:<22} {}\n  {:<22}   metric {}; generated\n", experiment.name,
                        experiment.summary, "", experiment.metrics.front());
  }
  return text;
}

Json task_list_json() {
  Json tasks = Json::array();
  for (const eval::Task& task : eval::tasks()) {
    Json metrics = Json::array();
    for (const eval::Metric& metric : task.metrics) metrics.push_back(metric.name);
    tasks.push_back({{"task", task.name},
                     {"group", task.group},
                     {"summary", task.summary},
                     {"metrics", metrics},
                     {"data", task.data_format == nullptr ? Json(nullptr) : Json(task.data_format)},
                     {"generated", !task.lengths.empty()},
                     {"max_tokens", task.max_tokens}});
  }
  Json all_experiments = Json::array();
  for (const eval::Experiment& experiment : eval::experiments()) {
    all_experiments.push_back({{"experiment", experiment.name},
                               {"summary", experiment.summary},
                               {"metrics", experiment.metrics}});
  }
  return {{"tasks", tasks}, {"experiments", all_experiments}};
}

std::string eval_table(const EvalResult& result) {
  const eval::EvalRun& run = result.run;
  std::string table = fmt::format("{} on {}: {} contexts, {} questions\n\n", run.task.name,
                                  run.header.at("model").at("name").get<std::string>(),
                                  format_count(static_cast<int64_t>(run.contexts.size())),
                                  format_count(run.n_questions()));
  table += fmt::format("{:<10} {:>6}", "method", "ratio");
  for (const std::string& metric : run.metric_names()) {
    table += fmt::format("  {:>{}}", metric, metric_width(metric));
  }
  table += fmt::format("  {:<18}  {:>10}\n", "relative [95%]", "KV cache");
  for (const eval::VariantSummary& variant : result.variants) {
    table += fmt::format("{:<10} {:>6}", variant.method, fmt::format("{}", variant.ratio));
    for (const eval::MetricSummary& metric : variant.metrics) {
      table += fmt::format("  {:>{}.3f}", metric.mean, metric_width(metric.name));
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
