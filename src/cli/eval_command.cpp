#include <fmt/format.h>

#include <memory>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/eval_output.h"
#include "cli/exit_code.h"
#include "cli/experiment_command.h"
#include "cli/interrupt.h"
#include "cli/model_catalogue.h"
#include "cli/model_locator.h"
#include "cli/progress_bar.h"
#include "cli/standard_output.h"
#include "ctxzip/error.h"
#include "eval/runner.h"

namespace ctxzip::cli {
namespace {

struct EvalFlags {
  std::string data;
  std::string out;
  std::string heads;
  std::vector<std::string> methods{"full", "kvzip", "random"};
  OutputOptions output;
  ModelFlags model;
  eval::RunOptions run;
};

std::string method_names() {
  std::string names;
  for (const eval::EvalMethod& method : eval::methods()) {
    names += (names.empty() ? "" : ",") + std::string(method.name);
  }
  return names;
}

std::vector<const eval::EvalMethod*> find_methods(const std::vector<std::string>& names) {
  std::vector<const eval::EvalMethod*> found;
  for (const std::string& name : names) {
    const eval::EvalMethod* const method = eval::find_method(name);
    if (method == nullptr) {
      throw CLI::ValidationError("--methods", "'" + name + "' is not one of " + method_names());
    }
    found.push_back(method);
  }
  return found;
}

// Answers what the log lacks, showing progress; notes of the engine go to standard error.
void run_with_progress(const Model& model, const eval::EvalRun& run, eval::RunLog& log,
                       ProgressBar& bar) {
  const InterruptScope interrupt;
  const eval::RunHooks hooks{
      .progress = [&](int64_t done,
                      int64_t total) { bar.update("eval", ProgressUnit::kSteps, done, total); },
      .notice =
          [&](LogLevel, std::string_view message) {
            bar.clear();
            print_note(message);
          },
      .cancel = interrupt.token()};
  try {
    eval::execute_run(model, run, log, hooks);
  } catch (const Error& error) {
    bar.clear();
    if (error.kind() == ErrorKind::kCancelled) {
      print_note(fmt::format("{} of {} contexts are done: the same command goes on from there",
                             log.n_contexts_done(), run.contexts.size()));
    }
    throw;
  }
  bar.finish();
}

int run(const eval::Task& task, EvalFlags& flags) {
  flags.run.methods = find_methods(flags.methods);
  flags.run.heads = read_heads(flags.heads);
  const std::string path = model_path(flags.model.model);
  ProgressBar bar;
  bar.status("loading the model");
  const Model model = load_model(path, flags.model.load);
  bar.status("preparing the contexts");
  const eval::EvalRun run = eval::prepare_run(model, task, flags.data, flags.run);
  bar.clear();
  eval::RunLog log(flags.out, run.header, run.plan, run.metric_names());
  EvalResult result{.run = run, .log = flags.out, .n_contexts_before = log.n_contexts_done()};
  result.warnings = eval_warnings(run, model.info());
  for (const std::string& warning : result.warnings) print_note(warning);
  if (result.n_contexts_before > 0) {
    print_note(fmt::format("{} of {} contexts were done before and are not run again",
                           result.n_contexts_before, run.contexts.size()));
  }
  run_with_progress(model, run, log, bar);
  result.variants = eval::summarise(log.records(), run.metric_names(), flags.run.seed);
  if (const auto cut = cut_answers_warning(result.variants)) {
    print_note(*cut);
    result.warnings.push_back(*cut);
  }
  if (flags.output.json) {
    print_json(eval_json(result));
  } else {
    print_out(eval_table(result));
  }
  return kExitOk;
}

void add_method_flags(CLI::App& app, EvalFlags& flags) {
  constexpr const char* kGroup = "Methods";
  eval::RunOptions& run = flags.run;
  app.add_option("--methods", flags.methods,
                 "What is compared, separated by commas (default: full,kvzip,random)")
      ->type_name("M,M...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kGroup);
  run.ratios = {0.3};
  app.add_option("--ratios", run.ratios,
                 "Shares of the cache to keep, separated by commas (default: 0.3)")
      ->type_name("R,R...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group(kGroup);
  add_allocation_flag(app, run.allocation)->group(kGroup);
  add_heads_flag(app, flags.heads)->group(kGroup);
  add_choice<ReconAttention>(
      app, "--recon-attention",
      {{"full", ReconAttention::kFull}, {"local", ReconAttention::kLocal}},
      [&](ReconAttention attention) { run.recon_attention = attention; },
      "Scoring sees the whole text, or one chunk (faster) (default: local)")
      ->group(kGroup);
  add_choice<Schedule>(
      app, "--schedule", {{"two-pass", Schedule::kTwoPass}, {"streaming", Schedule::kStreaming}},
      [&](Schedule schedule) { run.schedule = schedule; },
      "The whole text before anything is cut, or chunk by chunk (default: two-pass)")
      ->group(kGroup);
  add_kv_flag(app, run.kv, "How kept rows are stored; those of `full` stay f16 (default: f16)")
      ->group(kGroup);
  add_integer(
      app, "--chunk", {.min = 1}, [&](int64_t n) { run.chunk_tokens = n; },
      fmt::format("Tokens per scoring chunk (default: {})", run.chunk_tokens))
      ->group(kGroup);
  add_integer(
      app, "--seed", {}, [&](int64_t n) { run.seed = static_cast<uint64_t>(n); },
      "Seed of random and of the intervals (default: 0)")
      ->group(kGroup);
}

// Where the contexts come from: a file, or a generator and its options.
void add_data_flags(CLI::App& app, const eval::Task& task, EvalFlags& flags) {
  constexpr const char* kGroup = "Data";
  using Need = eval::DataNeed;
  if (task.need != Need::kGenerated) {
    const bool required = task.need != Need::kFileOrGenerated;
    const std::string otherwise = required ? "" : "; without it contexts are made";
    app.add_option("--data", flags.data, "The data: " + std::string(task.data_format) + otherwise)
        ->required(required)
        ->type_name(task.need == Need::kFileOrFolder ? "FILE|FOLDER" : "FILE")
        ->group(kGroup);
  }
  if (!task.lengths.empty()) {
    app.add_option("--length", flags.run.lengths,
                   fmt::format("Tokens of the contexts made, separated by commas (default: {})",
                               fmt::join(task.lengths, ",")))
        ->type_name("N,N...")
        ->delimiter(',')
        ->allow_extra_args(false)
        ->group(kGroup);
  }
  if (task.takes_filler) {
    app.add_option("--filler", flags.run.filler,
                   "A text to make contexts of (default: made-up sentences)")
        ->type_name("FILE")
        ->group(kGroup);
  }
  add_integer(
      app, "-n,--contexts", {.min = 1}, [&](int64_t n) { flags.run.n_contexts = n; },
      task.need == Need::kFile ? "Contexts to use, each with all its questions (default: all)"
                               : "Contexts to use or make, each with all its questions")
      ->group(kGroup);
  app.add_flag("--skip-long", flags.run.skip_long,
               "Leave out contexts that the model has no room for, instead of refusing the data")
      ->group(kGroup);
}

std::string example(const eval::Task& task) {
  switch (task.need) {
    case eval::DataNeed::kFile:
      return "--data data.json -n 30";
    case eval::DataNeed::kFileOrFolder:
      return "--data src/ --length 4000";
    case eval::DataNeed::kFileOrGenerated:
    case eval::DataNeed::kGenerated:
      break;
  }
  return "--length 1000,4000";
}

Run add_task(CLI::App& app, const eval::Task& task) {
  auto flags = std::make_shared<EvalFlags>();
  add_data_flags(app, task, *flags);
  app.add_option(
         "-o,--out", flags->out,
         "Answers are added to this file, one JSON object a line; an unfinished one goes on")
      ->required()
      ->type_name("RUN.jsonl");
  add_integer(
      app, "--max-tokens", {.min = 1}, [flags](int64_t n) { flags->run.max_tokens = n; },
      fmt::format("Longest answer, in tokens (default: {})", task.max_tokens));
  app.add_flag_callback(
      "--no-template", [flags] { flags->run.chat_template = false; },
      "Plain text instead of the model's chat template: lowers most scores");
  add_model_options(app, flags->model, std::string(default_model().name));
  add_method_flags(app, *flags);
  add_output_options(app, flags->output, "docs/eval.md");
  app.footer(
      fmt::format("Examples:\n"
                  "  ctxzip eval {0} {1} --ratios 0.3,0.5 --out run.jsonl\n"
                  "  ctxzip eval {0} {1} -m qwen2.5-coder-1.5b --methods full,kvzip --out q.jsonl",
                  task.name, example(task)));
  return [flags, &task] { return run(task, *flags); };
}

// Without a task: the list, or an error that tells where to find it.
int run_without_task(const CLI::App& app, bool list, bool json) {
  if (!app.remaining().empty()) {
    throw CLI::ValidationError("eval", fmt::format("there is no task '{}': `ctxzip eval --list` "
                                                   "shows all of them",
                                                   app.remaining().front()));
  }
  if (!list) {
    throw CLI::ValidationError("eval",
                               "a task is expected: `ctxzip eval --list` shows all of them");
  }
  if (json) {
    print_json(task_list_json());
  } else {
    print_out(task_list());
  }
  return kExitOk;
}

}  // namespace

Run add_eval(CLI::App& app) {
  app.require_subcommand(0, 1);
  app.footer(
      "Each task explains itself: ctxzip eval squad --help\n"
      "What every task needs, by groups: ctxzip eval --list");
  struct Flags {
    bool list = false;
    OutputOptions output;
  };
  auto flags = std::make_shared<Flags>();
  app.add_flag("--list", flags->list, "Show the tasks by groups, with the data that each needs");
  add_output_options(app, flags->output, "docs/eval.md");
  std::vector<std::pair<CLI::App*, Run>> tasks;
  for (const eval::Task& task : eval::tasks()) {
    CLI::App* const sub = app.add_subcommand(task.name, task.summary);
    tasks.emplace_back(sub, add_task(*sub, task));
  }
  for (const eval::Experiment& experiment : eval::experiments()) {
    CLI::App* const sub = app.add_subcommand(experiment.name, experiment.summary);
    tasks.emplace_back(sub, add_experiment(*sub, experiment));
  }
  // Only now: the tasks would inherit it. A word that is no task gets an error of our own.
  app.allow_extras();
  return [tasks, flags, &app] {
    for (const auto& [sub, run] : tasks) {
      if (sub->parsed()) return run();
    }
    return run_without_task(app, flags->list, flags->output.json);
  };
}

}  // namespace ctxzip::cli
