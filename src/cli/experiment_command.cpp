#include "cli/experiment_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/arguments.h"
#include "cli/common_options.h"
#include "cli/eval_output.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/model_locator.h"
#include "cli/progress_bar.h"
#include "cli/standard_output.h"
#include "ctxzip/error.h"
#include "eval/summary.h"

namespace ctxzip::cli {
namespace {

struct ExperimentFlags {
  std::string out;
  ModelFlags model;
  OutputOptions output;
  eval::ExperimentOptions run;
};

std::string table(const eval::ExperimentRun& run,
                  const std::vector<eval::VariantSummary>& variants) {
  const std::vector<std::string>& metrics = run.experiment.metrics;
  std::string text =
      fmt::format("{} on {}: {} texts of {} tokens\n\n{:<16} {:>9} {:>5}", run.experiment.name,
                  run.header.at("model").at("name").get<std::string>(), run.options.n_contexts,
                  run.options.length, "method", "ratio", "n");
  for (const std::string& metric : metrics) {
    text += fmt::format("  {:>{}}", metric, std::max<size_t>(9, metric.size()));
  }
  const bool exact_first = !variants.empty() && variants.front().metrics.front().exact;
  text += exact_first ? fmt::format("  {} [95%]\n", metrics.front()) : "\n";
  for (const eval::VariantSummary& variant : variants) {
    text += fmt::format("{:<16} {:>9} {:>5}", variant.method, fmt::format("{}", variant.ratio),
                        variant.n_questions);
    for (const eval::MetricSummary& metric : variant.metrics) {
      text += fmt::format("  {:>{}.3f}", metric.mean, std::max<size_t>(9, metric.name.size()));
    }
    const auto& exact = variant.metrics.front().exact;
    text += exact ? fmt::format("  [{:.3f}, {:.3f}]\n", exact->low, exact->high) : "\n";
  }
  return text;
}

int run(const eval::Experiment& experiment, const ExperimentFlags& flags) {
  if (!flags.model.model) {
    throw CLI::ValidationError(
        "-m", "a model trained on such texts is expected: `ctxzip model list` shows vestige-...");
  }
  ProgressBar bar;
  bar.status("loading the model");
  const Model model = load_model(model_path(flags.model.model), flags.model.load);
  bar.clear();
  const eval::ExperimentRun run = eval::prepare_experiment(model, experiment, flags.run);
  eval::RunLog log(flags.out, run.header, run.plan, experiment.metrics);
  const InterruptScope interrupt;
  eval::execute_experiment(model, run, log, interrupt.token(), [&](int64_t done) {
    bar.update("eval", ProgressUnit::kSteps, done, run.options.n_contexts);
  });
  bar.finish();
  if (const auto few = few_questions_warning(run.header.at("n_questions").get<int64_t>())) {
    print_note(*few);
  }
  const auto variants = eval::summarise(log.records(), experiment.metrics, flags.run.seed);
  if (!flags.output.json) {
    print_out(table(run, variants));
    return kExitOk;
  }
  Json json = run.header;
  json.erase("record");
  json["log"] = flags.out;
  json["results"] = Json::array();
  for (const eval::VariantSummary& variant : variants) {
    json["results"].push_back(eval::to_json(variant));
  }
  print_json(json);
  return kExitOk;
}

}  // namespace

Run add_experiment(CLI::App& app, const eval::Experiment& experiment) {
  auto flags = std::make_shared<ExperimentFlags>();
  eval::ExperimentOptions& run_options = flags->run;
  const auto number = [&](const char* flag, int64_t least, int64_t& target, const char* help) {
    add_integer(
        app, flag, {.min = least}, [&target](int64_t n) { target = n; },
        fmt::format("{} (default: {})", help, target));
  };
  app.add_option(
         "-o,--out", flags->out,
         "Results are added to this file, one JSON object a line; an unfinished one goes on")
      ->required()
      ->type_name("RUN.jsonl");
  app.add_option("--methods", run_options.methods,
                 fmt::format("{}; separated by commas (default: {})", experiment.known_methods,
                             fmt::join(experiment.methods, ",")))
      ->type_name("M,M...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--ratios", run_options.ratios,
                 fmt::format("Shares of rows to keep, separated by commas (default: {})",
                             fmt::join(experiment.ratios, ",")))
      ->type_name("R,R...")
      ->delimiter(',')
      ->allow_extra_args(false);
  number("--length", 64, run_options.length, "Tokens of a text");
  number("-n,--contexts", 1, run_options.n_contexts, "Texts");
  number("--needles", 1, run_options.n_needles, "Needles in a text, and as many distractors");
  number("--block", 64, run_options.block_rows, "Rows that sigma is made in");
  add_integer(
      app, "--seed", {}, [&](int64_t n) { run_options.seed = static_cast<uint64_t>(n); },
      "Seed of the texts (default: 0)");
  add_model_options(app, flags->model, "none: one trained on such texts is needed");
  add_output_options(app, flags->output, "docs/eval.md");
  app.footer(
      fmt::format("Example:\n  ctxzip eval {0} -m vestige-a1-long --length 2048 "
                  "--out run.jsonl\nWhat is measured: docs/eval.md, docs/results-vestigekv.md",
                  experiment.name));
  return [flags, &experiment] { return run(experiment, *flags); };
}

}  // namespace ctxzip::cli
