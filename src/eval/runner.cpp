#include "eval/runner.h"

#include <algorithm>

#include "core/fail.h"
#include "eval/context_run.h"
#include "eval/run_header.h"
#include "score/method_table.h"

namespace ctxzip::eval {
namespace {

void check_options(const RunOptions& options) {
  if (options.methods.empty())
    fail(ErrorKind::kInvalidArgument, "no method is given: expected at least one");
  if (options.max_tokens && *options.max_tokens < 1) {
    fail(ErrorKind::kInvalidArgument, "max tokens is {}: expected at least 1", *options.max_tokens);
  }
  for (const int64_t length : options.lengths) {
    if (length < 1 || std::count(options.lengths.begin(), options.lengths.end(), length) > 1) {
      fail(ErrorKind::kInvalidArgument,
           "a length of {} tokens: expected different numbers of 1 or more", length);
    }
  }
  bool needs_ratio = false;
  for (size_t at = 0; at < options.methods.size(); ++at) {
    const EvalMethod* const method = options.methods[at];
    needs_ratio |= method->scores.has_value();
    if (method->scores && method_traits(*method->scores).source == ScoreSource::kHeads &&
        options.heads == nullptr) {
      fail(ErrorKind::kInvalidArgument,
           "method {} needs head scores: give a file that `ctxzip heads` made (--heads)",
           method->name);
    }
    if (options.schedule == Schedule::kStreaming && method->scores &&
        (method->query != QuerySetting::kAgnostic || !method_traits(*method->scores).streams)) {
      fail(ErrorKind::kInvalidArgument, "method {} needs the two-pass schedule", method->name);
    }
    if (std::count(options.methods.begin(), options.methods.end(), method) > 1) {
      fail(ErrorKind::kInvalidArgument, "method {} is given twice", method->name);
    }
  }
  if (options.schedule == Schedule::kStreaming &&
      options.recon_attention == ReconAttention::kFull) {
    fail(ErrorKind::kInvalidArgument,
         "streaming has no whole text to attend to: local reconstruction attention is expected");
  }
  if (needs_ratio && options.ratios.empty()) {
    fail(ErrorKind::kInvalidArgument, "no ratio is given: expected at least one");
  }
  for (const double ratio : options.ratios) {
    if (!(ratio > 0 && ratio <= 1)) {
      fail(ErrorKind::kInvalidArgument, "a ratio of {}: expected more than 0 and at most 1", ratio);
    }
    if (std::count(options.ratios.begin(), options.ratios.end(), ratio) > 1) {
      fail(ErrorKind::kInvalidArgument, "ratio {} is given twice", ratio);
    }
  }
}

RunPlan plan_records(const std::vector<EvalContext>& contexts, const std::vector<Variant>& all) {
  RunPlan plan;
  for (const EvalContext& context : contexts) {
    std::vector<RecordKey> keys;
    for (const Variant& variant : all) {
      for (const EvalQuestion& question : context.questions) {
        keys.push_back({context.id, question.id, variant.method->name, variant.ratio});
      }
    }
    plan.push_back(std::move(keys));
  }
  return plan;
}

// plan_context, whose own advice for texts that are too long is of no use to an evaluation.
ZipPlan plan_with_room(const detail::ModelState& model, const RunOptions& options,
                       const EvalContext& context) {
  try {
    return plan_context(model, context, options.chat_template, zip_options(options, 0, {}));
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kTooLong) throw;
    fail(ErrorKind::kTooLong,
         "its {} tokens, the prompt and a scoring pass need more positions than the model is "
         "trained for, {}",
         model.tokenizer.encode_plain(context.text).size(), model.hp.n_ctx_train);
  }
}

// Throws Error{kTooLong} when the context and one of its questions leave no room for an answer.
// Returns whether a question is longer than the context.
bool check_room(const detail::ModelState& model, const Task& task, const RunOptions& options,
                const EvalContext& context) {
  const ZipPlan plan = plan_with_room(model, options, context);
  bool outgrown = false;
  for (const EvalQuestion& question : context.questions) {
    const auto n_question =
        static_cast<int64_t>(model.tokenizer.encode_plain(question_prompt(task, question)).size());
    const auto n_fixed =
        static_cast<int64_t>(plan.layout.question.size() + plan.layout.turn.size());
    const int64_t n_answer = options.max_tokens.value_or(answer_tokens(task, question));
    const int64_t needed = plan.n_positions() + n_fixed + n_question + n_answer;
    if (needed > model.hp.n_ctx_train) {
      fail(ErrorKind::kTooLong,
           "question {} with {} tokens and its answer of up to {} need {} positions after {} of "
           "the context; the model has {}",
           question.id, n_question, n_answer, needed, plan.n_positions(), model.hp.n_ctx_train);
    }
    outgrown |= n_question > plan.n_context();
  }
  return outgrown;
}

// Takes as many contexts of the data as are wanted, each checked before anything is computed.
void take_contexts(const Model& model, std::vector<EvalContext> contexts, EvalRun& run) {
  const auto wanted = static_cast<size_t>(run.options.n_contexts);
  for (EvalContext& context : in_turn(std::move(contexts))) {
    if (wanted > 0 && run.contexts.size() == wanted) return;
    if (is_blank(context.text))
      fail(ErrorKind::kCorruptFile, "context {} of the data is empty", context.id);
    for (const EvalQuestion& question : context.questions) {
      if (!is_blank(question.text)) continue;
      fail(ErrorKind::kCorruptFile, "question {} of context {} of the data is empty", question.id,
           context.id);
    }
    try {
      run.n_outgrown += check_room(*model.state(), run.task, run.options, context);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kTooLong) throw;
      if (!run.options.skip_long) {
        fail(ErrorKind::kTooLong,
             "context {}: {}; take shorter contexts, or leave those out with --skip-long",
             context.id, error.what());
      }
      ++run.n_long;
      continue;
    }
    run.contexts.push_back(std::move(context));
  }
  if (run.contexts.empty()) {
    fail(ErrorKind::kTooLong, "none of the {} contexts fits the model", run.n_long);
  }
}

}  // namespace

int64_t EvalRun::n_questions() const {
  int64_t n = 0;
  for (const EvalContext& context : contexts) n += static_cast<int64_t>(context.questions.size());
  return n;
}

std::vector<std::string> EvalRun::metric_names() const {
  std::vector<std::string> names;
  for (const Metric& metric : task.metrics) names.emplace_back(metric.name);
  return names;
}

std::vector<Variant> variants(const RunOptions& options) {
  std::vector<Variant> all;
  for (const EvalMethod* method : options.methods) {
    if (!method->scores) {
      all.push_back({method, 1});
      continue;
    }
    for (const double ratio : options.ratios) all.push_back({method, ratio});
  }
  return all;
}

EvalRun prepare_run(const Model& model, const Task& task, const std::string& data_path,
                    const RunOptions& options) {
  check_options(options);
  for (const EvalMethod* method : options.methods) {
    if (method->scores) check_method(*model.state(), *method->scores);
  }
  DataRequest request{.path = data_path,
                      .filler = options.filler,
                      .lengths = options.lengths,
                      .n_contexts = options.n_contexts,
                      .seed = options.seed,
                      .count_tokens = [&](std::string_view text) {
                        return static_cast<int64_t>(model.tokenize(text).size());
                      }};
  TaskData data = task.load(request);
  EvalRun run{.task = task, .options = options, .contexts = {}, .n_skipped = data.n_skipped};
  take_contexts(model, std::move(data.contexts), run);
  run.plan = plan_records(run.contexts, variants(options));
  run.header = run_header(model, run, data_path);
  return run;
}

void execute_run(const Model& model, const EvalRun& run, RunLog& log, const RunHooks& hooks) {
  int64_t n_answers = 0;
  for (size_t number = log.n_contexts_done(); number < run.plan.size(); ++number) {
    n_answers += static_cast<int64_t>(run.plan[number].size());
  }
  Progress progress(hooks, n_answers);
  for (size_t number = log.n_contexts_done(); number < run.contexts.size(); ++number) {
    log.append_context(ContextRun(model, run, number, hooks).records(progress));
  }
}

}  // namespace ctxzip::eval
