#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/model_catalogue.h"
#include "cli/model_locator.h"
#include "cli/output_folder.h"
#include "cli/progress_bar.h"
#include "cli/standard_output.h"
#include "eval/analysis_page.h"
#include "eval/task.h"

namespace ctxzip::cli {
namespace {

constexpr std::array<std::string_view, 5> kViews{"sparsity", "maps", "overlap", "source",
                                                 "refusals"};

struct AnalyzeFlags {
  std::vector<std::string> inputs;
  std::string out;
  std::vector<std::string> what;
  std::vector<std::string> questions;
  ModelFlags model;
  OutputOptions output;
  eval::AnalysisOptions analysis;

  bool wants(std::string_view view) const {
    if (what.empty()) return true;
    return std::find(what.begin(), what.end(), view) != what.end();
  }
  bool wants_attention() const {
    return wants("sparsity") || wants("maps") || wants("overlap") || wants("source");
  }
};

void check_flags(const AnalyzeFlags& flags) {
  for (const std::string& view : flags.what) {
    if (std::find(kViews.begin(), kViews.end(), view) == kViews.end()) {
      throw CLI::ValidationError(
          "--what", "'" + view + "' is not one of " + fmt::format("{}", fmt::join(kViews, ",")));
    }
  }
  for (const std::string& question : flags.questions) {
    if (eval::is_blank(question)) throw CLI::ValidationError("-q", "an empty question");
  }
  if (flags.inputs.empty() && flags.wants_attention()) {
    throw CLI::ValidationError("FILE", "a text is needed for all but --what refusals");
  }
  if (!flags.inputs.empty() && !flags.wants_attention()) {
    throw CLI::ValidationError("--what", "refusals has texts of its own: FILE is not used");
  }
}

class StepBar {
 public:
  void start(std::string_view name) {
    bar_.finish();
    label_ = name;
    bar_.status(name);
  }
  void update(int64_t done, int64_t total) {
    bar_.update(label_, ProgressUnit::kSteps, done, total);
  }
  void note(std::string_view message) {
    bar_.clear();
    print_note(message);
  }
  void finish() { bar_.finish(); }

 private:
  ProgressBar bar_;
  std::string label_;
};

eval::AnalysisResult analyse(const Model& model, const std::string& text, AnalyzeFlags& flags,
                             StepBar& bar) {
  const InterruptScope interrupt;
  eval::AnalysisResult result{.model_name = model_label(model.info()),
                              .attention = {},
                              .views = {.sparsity = flags.wants("sparsity"),
                                        .maps = flags.wants("maps"),
                                        .overlap = flags.wants("overlap")},
                              .refusals = {}};
  eval::AnalysisOptions& options = flags.analysis;
  options.answers = result.views.maps || result.views.overlap;
  options.source = flags.wants("source");
  options.zip.cancel = interrupt.token();
  options.zip.notice = [&](LogLevel, std::string_view message) { bar.note(message); };
  options.zip.progress = [&](Stage, int64_t done, int64_t total) { bar.update(done, total); };
  if (!flags.questions.empty()) options.questions = flags.questions;
  if (flags.wants_attention()) {
    result.attention = eval::analyse_attention(model, text, options,
                                               [&](std::string_view step) { bar.start(step); });
  }
  if (flags.wants("refusals")) {
    bar.start("refusals");
    result.refusals = eval::run_refusals(
        model, eval::kRefusalRatio, [&](int64_t done, int64_t total) { bar.update(done, total); },
        interrupt.token());
  }
  bar.finish();
  return result;
}

int run(AnalyzeFlags& flags) {
  check_flags(flags);
  const std::string text = flags.inputs.empty() ? "" : read_texts(flags.inputs);
  const std::string path = model_path(flags.model.model);
  make_folder(flags.out);
  StepBar bar;
  bar.start("loading the model");
  const Model model = load_model(path, flags.model.load);
  const eval::AnalysisResult result = analyse(model, text, flags, bar);
  const std::vector<eval::ReportFile> files = eval::analysis_files(result);
  write_files(flags.out, files);
  if (flags.output.json) {
    Json json = eval::to_json(result);
    json["files"] = Json::array();
    for (const eval::ReportFile& file : files) json["files"].push_back(file.name);
    print_json(json);
  } else {
    print_out(eval::analysis_text(result) + "files:" + list_files(flags.out, files));
  }
  return kExitOk;
}

}  // namespace

Run add_analyze(CLI::App& app) {
  auto flags = std::make_shared<AnalyzeFlags>();
  AnalyzeFlags* const f = flags.get();
  add_texts(app, "FILE", flags->inputs, "Texts, joined by an empty line; - is standard input");
  app.add_option("-o,--out", flags->out, "Folder for the files; it is made if it is missing")
      ->required()
      ->type_name("DIR");
  app.add_option(
         "--what", flags->what,
         fmt::format("What to look at, separated by commas (default: {})", fmt::join(kViews, ",")))
      ->type_name("V,V...")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_text(
      app, "-q,--question", [f](std::string text) { f->questions.push_back(std::move(text)); },
      "A question about the text; may be given several times (default: two that fit any text)")
      ->trigger_on_parse();
  add_model_options(app, flags->model, std::string(default_model().name));
  add_real(
      app, "-r,--ratio", {.max = 1, .min_excluded = true}, [f](double x) { f->analysis.ratio = x; },
      fmt::format("Share of the pairs that count as a task's best (default: {})",
                  flags->analysis.ratio));
  add_integer(
      app, "--chunk", {.min = 1}, [f](int64_t n) { f->analysis.zip.chunk_tokens = n; },
      fmt::format("As for zip (default: {})", flags->analysis.zip.chunk_tokens));
  add_integer(
      app, "-n,--max-tokens", {.min = 1}, [f](int64_t n) { f->analysis.answer_tokens = n; },
      fmt::format("Longest answer, in tokens (default: {})", flags->analysis.answer_tokens));
  add_output_options(app, flags->output, "docs/eval.md");
  app.footer(
      "Examples:\n"
      "  ctxzip analyze manual.txt -o analysis -q \"How is it started?\" -q \"What does it "
      "weigh?\"\n"
      "  ctxzip analyze -o refusals --what refusals -m qwen2.5-coder-1.5b");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
