#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <ranges>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/model_catalogue.h"
#include "cli/model_locator.h"
#include "cli/output_file.h"
#include "cli/progress_bar.h"
#include "cli/recall_flags.h"
#include "cli/standard_output.h"
#include "cli/terminal.h"
#include "cli/zip_estimate.h"
#include "cli/zip_report.h"
#include "core/fail.h"
#include "ctxzip/zip.h"

namespace ctxzip::cli {
namespace {

namespace fs = std::filesystem;

struct ZipFlags {
  std::vector<std::string> inputs;
  std::string out;
  OutputOptions output;
  ModelFlags model;
  ZipOptions zip;
  std::vector<CLI::Option*> budget_flags;
  CLI::Option* method_flag = nullptr;
  std::string heads;
  RecallFlags recall;
};

void add_budget_flags(CLI::App& app, Budget& budget, std::vector<CLI::Option*>& flags) {
  flags = {
      add_real(
          app, "-r,--ratio", {.max = 1, .min_excluded = true}, [&](double x) { budget.ratio = x; },
          "Share of the cache to keep (default: 0.3)"),
      add_integer(
          app, "--keep", {.min = 1}, [&](int64_t n) { budget.keep_tokens = n; },
          "Keep the worth of this many tokens"),
      add_size(
          app, "--size", [&](int64_t bytes) { budget.size_bytes = bytes; },
          "Keep at most this many bytes: 200MiB, 1.5G, 512K"),
      add_real(
          app, "--quality", {}, [&](double x) { budget.quality = x; },
          "Keep as little as loses at most this in nats per token, held out or not"),
  };
  for (CLI::Option* const flag : flags) flag->group("Budget, one of");
}

void add_method_flags(CLI::App& app, ZipFlags& flags) {
  ZipOptions& zip = flags.zip;
  constexpr const char* kGroup = "Method";
  std::vector<std::pair<std::string, Method>> methods;
  for (const MethodInfo& info : zip_methods()) methods.emplace_back(info.name, info.method);
  flags.method_flag = add_choice<Method>(
      app, "--method", methods, [&](Method method) { zip.method = method; },
      fmt::format("What decides which pairs stay: {} (docs/methods.md; default: kvzip)",
                  fmt::join(methods | std::views::keys, ", ")));
  flags.method_flag->type_name("METHOD")->group(kGroup);
  add_allocation_flag(app, zip.allocation)->group(kGroup);
  add_heads_flag(app, flags.heads)->group(kGroup);
  add_choice<Schedule>(
      app, "--schedule", {{"two-pass", Schedule::kTwoPass}, {"streaming", Schedule::kStreaming}},
      [&](Schedule schedule) { zip.schedule = schedule; },
      "Score the whole text at the end, or cut it chunk by chunk (default: two-pass)")
      ->group(kGroup);
  add_choice<ReconAttention>(
      app, "--recon-attention",
      {{"full", ReconAttention::kFull}, {"local", ReconAttention::kLocal}},
      [&](ReconAttention attention) { zip.recon_attention = attention; },
      "Scoring sees the whole text, or one chunk (faster) (default: local)")
      ->group(kGroup);
  add_kv_flag(app, zip.kv, "How kept rows are stored (default: f16)")->group(kGroup);
  add_integer(
      app, "--chunk", {.min = 1}, [&](int64_t n) { zip.chunk_tokens = n; },
      fmt::format("Tokens per scoring chunk (default: {})", zip.chunk_tokens))
      ->group(kGroup);
  add_integer(
      app, "--seed", {}, [&](int64_t n) { zip.seed = static_cast<uint64_t>(n); },
      "Seed of --method random (default: 0)")
      ->group(kGroup);
  app.add_flag_callback(
         "--no-check", [&] { zip.self_check = false; }, "Do not measure the loss")
      ->group(kGroup);
}

// Flags that say what to evict make no sense where nothing is.
void check_policy(const CLI::App& app, const RecallFlags& recall) {
  require_policy(recall);
  if (!recall.chosen) return;
  for (const CLI::Option* const option : app.get_options()) {
    const std::string& group = option->get_group();
    if (option->count() == 0 || (group != "Method" && group != "Budget, one of")) continue;
    throw CLI::ValidationError("--" + option->get_lnames().front(),
                               "says what is evicted, but --policy vestige evicts nothing");
  }
}

// What the flags say only together.
void check_flags(const ZipFlags& flags) {
  std::string budgets;
  int n_budgets = 0;
  for (const CLI::Option* const flag : flags.budget_flags) {
    if (flag->count() == 0) continue;
    budgets += (n_budgets++ > 0 ? " and --" : "--") + flag->get_lnames().front();
  }
  if (n_budgets > 1) throw CLI::ValidationError(budgets, "only one budget can be given");
  if (flags.zip.budget.quality && !flags.zip.self_check) {
    throw CLI::ValidationError("--no-check", "--quality needs the check");
  }
  if (flags.zip.schedule == Schedule::kStreaming &&
      flags.zip.recon_attention == ReconAttention::kFull) {
    throw CLI::ValidationError("--recon-attention", "streaming has no whole text to attend to");
  }
  const bool by_heads =
      flags.zip.method == Method::kHeadsDuo || flags.zip.method == Method::kHeadsDrop;
  if (by_heads && flags.heads.empty()) {
    throw CLI::ValidationError("--method", std::string(method_name(flags.zip.method)) +
                                               " needs head scores: --heads FILE.json");
  }
  if (!by_heads && !flags.heads.empty()) {
    throw CLI::ValidationError("--heads", "is for the methods heads-duo and heads-drop, not for " +
                                              std::string(method_name(flags.zip.method)));
  }
}

// Where the result goes; finds out before the work what could stop it from being written.
std::string output_path(const ZipFlags& flags) {
  const std::string& first = flags.inputs.front();
  if (flags.out.empty() && first == "-") {
    throw CLI::ValidationError("-o", "is needed when the text comes from standard input");
  }
  const std::string out =
      flags.out.empty() ? fs::path(first).filename().string() + ".ctz" : flags.out;
  if (out == "-") throw CLI::ValidationError("-o", "a .ctz cannot go to standard output");
  std::error_code ignored;
  for (const std::string& input : flags.inputs) {
    if (input != "-" && fs::equivalent(input, out, ignored)) {
      throw CLI::ValidationError("-o", "'" + out + "' is one of the texts to zip");
    }
  }
  check_output_file(out);
  return out;
}

void print_result(const ZipResult& result, bool json) {
  if (json) return print_json(zip_json(result));
  print_out(zip_table(result));
}

void show_progress(ProgressBar& bar, Stage stage, int64_t done, int64_t total) {
  switch (stage) {
    case Stage::kPrefill:
    case Stage::kScore:
      return bar.update(stage_name(stage), ProgressUnit::kTokens, done, total);
    case Stage::kCheck:
      return bar.update(stage_name(stage), ProgressUnit::kSteps, done, total);
    case Stage::kLoad:
    case Stage::kCompact:
    case Stage::kWrite:
      return;  // over before a bar could be read
  }
}

// The zip itself; notices are printed at once and kept.
Context run_zip(const Model& model, const std::string& text, ZipFlags& flags,
                const std::string& out, ProgressBar& bar) {
  const InterruptScope interrupt;
  flags.zip.cancel = interrupt.token();
  flags.zip.progress = [&](Stage stage, int64_t done, int64_t total) {
    show_progress(bar, stage, done, total);
    // The check comes between the other stages; say so until something else is reported.
    if (done == total && flags.zip.self_check) bar.status("checking the loss");
  };
  Context context = zip(model, text, flags.zip);
  bar.finish();
  if (interrupt.token()->cancelled()) fail(ErrorKind::kCancelled, "interrupted");
  context.save(out);
  return context;
}

// Says what the zip will take.
ZipEstimate announce(const Model& model, const std::string& text, ZipFlags& flags,
                     ProgressBar& bar) {
  ZipOptions silent = flags.zip;
  silent.notice = {};  // the zip itself brings the notices
  const ZipEstimate estimate = estimate_zip(model, text, silent);
  const double seconds = estimated_seconds(estimate, model, flags.model.load.n_threads);
  bar.clear();
  if (is_terminal(STDERR_FILENO)) {
    fmt::print(stderr, "{}\n", describe_estimate(estimate, seconds));
  }
  if (const auto warning = memory_warning(estimate)) flags.zip.notice(LogLevel::kWarning, *warning);
  return estimate;
}

// A whole text under the policy.
Context run_stream(const Model& model, const std::string& text, ZipFlags& flags,
                   const std::string& out, ProgressBar& bar) {
  const InterruptScope interrupt;
  StreamOptions options = flags.recall.apply({});
  options.system = flags.zip.system;
  options.cancel = interrupt.token();
  options.notice = flags.zip.notice;
  options.allow_long = flags.zip.allow_long;
  options.progress = [&](Stage stage, int64_t done, int64_t total) {
    show_progress(bar, stage, done, total);
  };
  Context context = zip_stream(model, text, options);
  bar.finish();
  context.save(out);
  return context;
}

int run(ZipFlags& flags) {
  if (!flags.heads.empty() && flags.method_flag->count() == 0) {
    flags.zip.method = Method::kHeadsDuo;
  }
  check_flags(flags);
  const std::string out = output_path(flags);
  const std::string text = read_texts(flags.inputs);
  flags.zip.heads = read_heads(flags.heads);
  const std::string path = model_path(flags.model.model);
  ProgressBar bar;
  ZipResult result{.file = out, .model_path = path, .default_model = !flags.model.model};
  flags.zip.notice = [&](LogLevel, std::string_view message) {
    bar.clear();
    print_note(message);
    result.notices.emplace_back(message);
  };
  bar.status("loading the model");
  const Model model = load_model(path, flags.model.load);
  std::optional<ZipEstimate> estimate;
  if (!flags.recall.chosen) estimate = announce(model, text, flags, bar);
  const Context context =
      estimate ? run_zip(model, text, flags, out, bar) : run_stream(model, text, flags, out, bar);
  result.recall = context.recall_report();
  result.report = context.report();
  result.file_bytes = static_cast<int64_t>(fs::file_size(out));
  result.model_name = model.info().name;
  result.model_label = model_label(model.info());
  result.model_fingerprint = model.info().fingerprint;
  // Runs of other kinds would mislead the next estimate.
  if (estimate && flags.zip.self_check && !flags.zip.budget.quality) {
    learn_speed(*estimate, result.report, model, flags.model.load.n_threads);
  }
  print_result(result, flags.output.json);
  return kExitOk;
}

}  // namespace

Run add_zip(CLI::App& app) {
  auto flags = std::make_shared<ZipFlags>();
  ZipFlags* const f = flags.get();
  add_texts(app, "FILE", flags->inputs, "Texts, joined by an empty line; - is standard input")
      ->required();
  add_text(
      app, "-o,--output", [f](std::string path) { f->out = std::move(path); },
      "The file to write (default: the first text's name + .ctz, in this folder)")
      ->type_name("OUT.ctz");
  add_model_options(app, flags->model, std::string(default_model().name));
  add_budget_flags(app, flags->zip.budget, flags->budget_flags);
  add_method_flags(app, *flags);
  add_text(
      app, "--system", [f](std::string text) { f->zip.system = std::move(text); },
      "System prompt (default: the model's own)");
  app.add_flag("--allow-long", flags->zip.allow_long,
               "Go past the length that the model was trained for");
  add_recall_flags(app, flags->recall, RecallUse::kNewText);
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip zip manual.txt -o manual.ctz --ratio 0.3\n"
      "  git log | ctxzip zip - -o log.ctz --size 20MiB -m qwen2.5-coder-1.5b\n"
      "  ctxzip zip manual.txt -m kimi.gguf --policy vestige --rho 1/32");
  return [flags, &app] {
    check_policy(app, flags->recall);
    return run(*flags);
  };
}

}  // namespace ctxzip::cli
