#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/human.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/model_catalogue.h"
#include "cli/model_locator.h"
#include "cli/output_file.h"
#include "cli/progress_bar.h"
#include "cli/standard_output.h"
#include "core/file.h"
#include "ctxzip/heads.h"
#include "eval/sample_text.h"

namespace ctxzip::cli {
namespace {

// Of the built-in sample, about 4,000 tokens: half of what the smallest model is trained for.
constexpr size_t kSampleBytes = 14000;

struct HeadsFlags {
  std::vector<std::string> texts;
  std::string out;
  ModelFlags model;
  OutputOptions output;
  ZipOptions zip;
};

std::vector<std::string> sample_texts(const std::vector<std::string>& files) {
  std::vector<std::string> texts;
  for (const std::string& file : files) texts.push_back(read_texts({file}));
  if (texts.empty()) texts.push_back(eval::sample_text().substr(0, kSampleBytes));
  return texts;
}

Json trial_json(const HeadTrial& trial) {
  Json losses = Json::array();
  for (const HeadLoss& loss : trial.losses) {
    losses.push_back({{"ratio", loss.ratio},
                      {"delta_nll", loss.delta_nll},
                      {"delta_nll_probe", loss.delta_nll_probe}});
  }
  return {{"method", method_name(trial.method)},
          {"recommended_ratio", trial.recommended_ratio},
          {"losses", losses}};
}

Json heads_result_json(const HeadsFlags& flags, const HeadMeasurement& found, double seconds) {
  Json json = Json::parse(heads_to_json(found.scores));
  json["file"] = flags.out;
  json["seconds"] = seconds;
  json["trials"] = Json::array();
  for (const HeadTrial& trial : found.trials) json["trials"].push_back(trial_json(trial));
  return json;
}

std::string describe_trial(const HeadTrial& trial) {
  std::string text = fmt::format("  {:<11}", method_name(trial.method));
  for (const HeadLoss& loss : trial.losses) {
    text += fmt::format(" {:.1f}: {}/{} ", loss.ratio, format_nll(loss.delta_nll),
                        format_nll(loss.delta_nll_probe));
  }
  text += trial.recommended_ratio < 1
              ? fmt::format("\n              recommended: --ratio {:g}, the least within {:g}\n",
                            trial.recommended_ratio, kHeadLossBound)
              : fmt::format("\n              none of these ratios loses less than {:g}\n",
                            kHeadLossBound);
  return text;
}

std::string heads_table(const HeadsFlags& flags, const HeadMeasurement& found, double seconds) {
  const HeadScores& heads = found.scores;
  std::string table = fmt::format(
      "{}\n  {}: {} heads in {} layers, from {} tokens of {} in {}\n", flags.out, heads.model_name,
      heads.values.size(), heads.layers.size(), format_count(heads.sample_tokens),
      heads.n_samples == 1 ? "one text" : fmt::format("{} texts", heads.n_samples),
      format_seconds(seconds));
  if (found.trials.empty()) return table;
  table += "  losses on the last text, ratio: delta_nll/delta_nll_probe, nats per token\n";
  for (const HeadTrial& trial : found.trials) table += describe_trial(trial);
  return table;
}

HeadMeasurement measure(const Model& model, HeadsFlags& flags, ProgressBar& bar) {
  const InterruptScope interrupt;
  flags.zip.cancel = interrupt.token();
  flags.zip.notice = [&](LogLevel, std::string_view message) {
    bar.clear();
    print_note(message);
  };
  flags.zip.progress = [&](Stage stage, int64_t done, int64_t total) {
    if (stage != Stage::kPrefill && stage != Stage::kScore) return;
    bar.update(stage_name(stage), ProgressUnit::kTokens, done, total);
    if (done == total && stage == Stage::kPrefill) bar.status("trying ratios");
  };
  HeadMeasurement found = measure_heads(model, sample_texts(flags.texts), flags.zip);
  bar.finish();
  return found;
}

int run(HeadsFlags& flags) {
  check_output_file(flags.out);
  const std::string path = model_path(flags.model.model);
  ProgressBar bar;
  bar.status("loading the model");
  const Model model = load_model(path, flags.model.load);
  bar.clear();
  if (flags.texts.empty()) {
    print_note("a built-in text is the sample: a long one of your own kind (--text) is better");
  }
  const auto start = std::chrono::steady_clock::now();
  const HeadMeasurement found = measure(model, flags, bar);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::string json = heads_to_json(found.scores);
  write_file_atomically(flags.out, [&](const WriteFn& sink) {
    sink(std::as_bytes(std::span(json.data(), json.size())));
  });
  if (flags.output.json) {
    print_json(heads_result_json(flags, found, seconds));
  } else {
    print_out(heads_table(flags, found, seconds));
  }
  return kExitOk;
}

}  // namespace

Run add_heads(CLI::App& app) {
  auto flags = std::make_shared<HeadsFlags>();
  HeadsFlags* const f = flags.get();
  app.add_option("--text", flags->texts,
                 "Sample texts, each scored by itself; - is standard input (default: a built-in "
                 "one)")
      ->type_name("FILE...");
  add_text(
      app, "-o,--output", [f](std::string path) { f->out = std::move(path); }, "The file to write")
      ->required()
      ->type_name("HEADS.json");
  add_model_options(app, flags->model, std::string(default_model().name));
  add_choice<ReconAttention>(
      app, "--recon-attention",
      {{"full", ReconAttention::kFull}, {"local", ReconAttention::kLocal}},
      [f](ReconAttention attention) { f->zip.recon_attention = attention; },
      "As for zip (default: local)");
  add_integer(
      app, "--chunk", {.min = 1}, [f](int64_t n) { f->zip.chunk_tokens = n; },
      fmt::format("As for zip (default: {})", flags->zip.chunk_tokens));
  app.add_flag_callback(
      "--no-check", [f] { f->zip.self_check = false; }, "Do not try ratios");
  app.add_flag("--allow-long", flags->zip.allow_long,
               "Go past the length that the model was trained for");
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip heads -o heads.json --text book.txt\n"
      "  ctxzip zip manual.txt --heads heads.json --ratio 0.6");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
