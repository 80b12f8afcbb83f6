#include "eval/attention_analysis.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/fail.h"
#include "ctxzip/session.h"
#include "engine/query_scores.h"
#include "engine/turn.h"
#include "engine/zipper.h"
#include "select/select.h"

namespace ctxzip::eval {
namespace {

constexpr const char* kSummaryRequest = "Summarize the text in a few sentences.";

std::vector<uint8_t> best_pairs(const Scores& scores, int64_t n_best) {
  const KeepSet kept = select_pairs(scores, n_best, Allocation::kGlobal);
  std::vector<uint8_t> best(scores.values.size());
  for (size_t head = 0; head < kept.rows.size(); ++head) {
    for (const uint32_t row : kept.rows[head]) {
      best[head * static_cast<size_t>(scores.n_context) + row] = 1;
    }
  }
  return best;
}

using StepFn = std::function<void(std::string_view)>;

class Analysis {
 public:
  Analysis(const Model& model, std::string_view text, const AnalysisOptions& options,
           const StepFn& on_step)
      : model_(model),
        options_(options),
        zip_(zip_options(options)),
        zipper_(model, plan_zip(*model.state(), text, zip_), zip_),
        on_step_(on_step) {}

  AttentionAnalysis run();

 private:
  static ZipOptions zip_options(const AnalysisOptions& options);
  void start(std::string_view step) const {
    if (on_step_) on_step_(step);
  }
  void add(TaskAttention task);
  void add_answer(const Context& full, std::string name, const std::string& question);

  const Model& model_;
  const AnalysisOptions& options_;
  ZipOptions zip_;
  Zipper zipper_;
  const StepFn& on_step_;
  int64_t n_best_ = 0;
  AttentionAnalysis result_;
};

ZipOptions Analysis::zip_options(const AnalysisOptions& options) {
  ZipOptions zip = options.zip;
  zip.method = Method::kH2o;  // so that the prefill notes down its own attention
  zip.schedule = Schedule::kTwoPass;
  zip.recon_attention = ReconAttention::kFull;
  zip.allocation = Allocation::kGlobal;
  zip.kv = KvType::kF16;
  zip.self_check = false;
  zip.budget = {};
  zip.budget.ratio = options.ratio;
  return zip;
}

void Analysis::add(TaskAttention task) {
  task.best = best_pairs(task.weights, n_best_);
  result_.tasks.push_back(std::move(task));
}

void Analysis::add_answer(const Context& full, std::string name, const std::string& question) {
  start(name);
  const Answer answer = Session(full).ask(
      question, {.max_tokens = options_.answer_tokens, .cancel = options_.zip.cancel});
  if (answer.stop_reason == StopReason::kCancelled) fail(ErrorKind::kCancelled, "interrupted");
  std::vector<Token> tokens = turn_prompt(*full.state(), question, false, false);
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  add({.name = std::move(name),
       .question = question,
       .answer = answer.text,
       .weights = pass_scores(*model_.state(), zipper_, Method::kH2o, tokens, zip_.cancel)});
}

AttentionAnalysis Analysis::run() {
  const ZipPlan& plan = zipper_.plan();
  if (plan.too_short) {
    fail(ErrorKind::kUnsupported,
         "a text of {} tokens is too short to be scored: expected {} or more", plan.n_context(),
         kShortestCompressed);
  }
  n_best_ = pairs_for_budget(zip_.budget, context_size(*model_.state(), plan, zip_));
  result_.context_tokens = plan.n_context();
  result_.chunk_tokens = plan.chunk_tokens;
  result_.ratio = options_.ratio;
  start("prefill");
  zipper_.prefill();
  add({.name = "prefill", .weights = zipper_.scores(Method::kH2o)});
  start("repeat");
  add({.name = "repeat", .weights = zipper_.scores(Method::kKvzip)});
  if (options_.source) {
    start("source");
    const Scores from_text = zipper_.reconstruction_scores({.prompt_queries = false});
    const TaskAttention& repeat = result_.tasks.back();
    result_.source = source_share(from_text.values, repeat.weights.values, repeat.best);
  }
  if (options_.answers) {
    const Scores& scores = result_.tasks.front().weights;
    const Context full = zipper_.copy(zip_.method, zip_.allocation,
                                      keep_all(scores.n_layer, scores.n_kv_head, scores.n_context));
    for (size_t at = 0; at < options_.questions.size(); ++at) {
      add_answer(full, fmt::format("qa-{}", at + 1), options_.questions[at]);
    }
    add_answer(full, "summary", kSummaryRequest);
  }
  return std::move(result_);
}

}  // namespace

const TaskAttention& AttentionAnalysis::task(std::string_view name) const {
  const auto found = std::find_if(tasks.begin(), tasks.end(),
                                  [&](const TaskAttention& task) { return task.name == name; });
  CHECK(found != tasks.end());
  return *found;
}

AttentionAnalysis analyse_attention(const Model& model, std::string_view text,
                                    const AnalysisOptions& options,
                                    const std::function<void(std::string_view)>& on_step) {
  CHECK(!options.questions.empty());
  return Analysis(model, text, options, on_step).run();
}

}  // namespace ctxzip::eval
