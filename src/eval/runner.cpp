#include "eval/runner.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <utility>

#include "core/fail.h"
#include "core/file.h"
#include "core/hash.h"
#include "ctxzip/heads.h"
#include "ctxzip/session.h"
#include "ctxzip_version.h"
#include "engine/document_text.h"
#include "engine/query_scores.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "score/method_table.h"
#include "select/select.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kLogVersion = 1;
constexpr int64_t kQuestionsAtOnce = 8;

const char* name_of(ReconAttention attention) {
  return attention == ReconAttention::kFull ? "full" : "local";
}

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
    if (std::count(options.methods.begin(), options.methods.end(), method) > 1) {
      fail(ErrorKind::kInvalidArgument, "method {} is given twice", method->name);
    }
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

Json file_json(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  if (std::filesystem::is_directory(path)) {
    return {{"folder", std::filesystem::canonical(path).filename().string()}};
  }
  const MappedFile file(path);
  return {
      {"file", name}, {"bytes", file.bytes().size()}, {"xxhash64", to_hex(hash64(file.bytes()))}};
}

// Where the contexts come from, without folders of this machine.
Json data_json(const EvalRun& run, const std::string& data_path) {
  Json data = data_path.empty() ? Json{{"generator", run.task.name}} : file_json(data_path);
  if (!run.options.lengths.empty()) data["lengths"] = run.options.lengths;
  if (!run.options.filler.empty()) data["filler"] = file_json(run.options.filler);
  // A generator or reader that changes makes another run, whatever its options.
  Hasher64 hasher;
  const auto add = [&](const std::string& text) {
    hasher.update_value(text.size());
    hasher.update(std::as_bytes(std::span(text)));
  };
  for (const EvalContext& context : run.contexts) {
    add(context.text);
    for (const EvalQuestion& question : context.questions) {
      add(question_prompt(run.task, question));
      for (const std::string& answer : question.answers) add(answer);
    }
  }
  data["contexts_xxhash64"] = to_hex(hasher.digest());
  return data;
}

Json header_json(const Model& model, const EvalRun& run, const std::string& data_path) {
  const RunOptions& options = run.options;
  Json methods = Json::array();
  for (const EvalMethod* method : options.methods) methods.push_back(method->name);
  Json heads;  // null without head scores
  if (options.heads != nullptr) {
    heads = to_hex(hash64(std::as_bytes(std::span(options.heads->values))));
  }
  return {
      {"record", "header"},
      {"format", "ctxzip-eval"},
      {"format_version", kLogVersion},
      {"ctxzip", CTXZIP_VERSION},
      {"task", run.task.name},
      {"group", run.task.group},
      {"instruction", run.task.instruction},
      {"metrics", run.metric_names()},
      {"model",
       {{"name", model.info().name},
        {"architecture", model.info().architecture},
        {"fingerprint", model.info().fingerprint}}},
      {"data", data_json(run, data_path)},
      {"methods", methods},
      {"ratios", options.ratios},
      {"heads", heads},
      {"n_contexts", run.contexts.size()},
      {"n_questions", run.n_questions()},
      {"max_tokens", options.max_tokens.value_or(run.task.max_tokens)},
      {"seed", options.seed},
      {"allocation", allocation_name(options.allocation)},
      {"recon_attention", name_of(options.recon_attention)},
      {"schedule", options.schedule == Schedule::kTwoPass ? "two-pass" : "streaming"},
      {"chunk_tokens", options.chunk_tokens},
      {"chat_template", options.chat_template},
      // Each question is asked alone over the untouched context: no earlier turn, neither the
      // model's own answer nor the right one, is in the cache.
      {"turns", "independent"},
      {"sampling", "greedy"},
  };
}

ZipOptions zip_options(const RunOptions& options, size_t context_number, const RunHooks& hooks) {
  ZipOptions zip;
  zip.allocation = options.allocation;
  zip.heads = options.heads;
  zip.recon_attention = options.recon_attention;
  zip.chunk_tokens = options.chunk_tokens;
  zip.self_check = false;
  // Contexts of equal length would lose the same places otherwise.
  zip.seed = options.seed + context_number;
  zip.notice = hooks.notice;
  zip.cancel = hooks.cancel;
  return zip;
}

ZipPlan plan_context(const detail::ModelState& model, const EvalContext& context,
                     bool chat_template, const ZipOptions& options) {
  if (chat_template) return plan_zip(model, context.text, options);
  return plan_zip(model, model.tokenizer.plain_layout(std::nullopt),
                  model.tokenizer.encode_plain(normalise_document(context.text).text), options);
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

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n") == std::string::npos;
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

// Counts answers and tells the hooks.
class Progress {
 public:
  Progress(const RunHooks& hooks, int64_t total) : hooks_(hooks), total_(total) { report(); }
  void answered() {
    ++done_;
    report();
  }

 private:
  void report() const {
    if (hooks_.progress) hooks_.progress(done_, total_);
  }
  const RunHooks& hooks_;
  int64_t done_ = 0;
  int64_t total_;
};

void stop_if_cancelled(const RunHooks& hooks) {
  if (hooks.cancel != nullptr && hooks.cancel->cancelled())
    fail(ErrorKind::kCancelled, "interrupted");
}

// One context under all variants.
class ContextRun {
 public:
  ContextRun(const Model& model, const EvalRun& run, size_t number, const RunHooks& hooks)
      : model_(model),
        run_(run),
        context_(run.contexts[number]),
        number_(number),
        hooks_(hooks),
        zipper_(model,
                plan_context(*model.state(), context_, run.options.chat_template,
                             zip_options(run.options, number, hooks)),
                zip_options(run.options, number, hooks)) {}

  std::vector<AnswerRecord> records(Progress& progress) {
    std::vector<AnswerRecord> all;
    for (const Variant& variant : variants(run_.options)) ask_all(variant, progress, all);
    return all;
  }

 private:
  void ask_all(const Variant& variant, Progress& progress, std::vector<AnswerRecord>& all);
  // The context with only what a variant keeps, and the time of the steps to it.
  Context cut(const Variant& variant, const KeepSet& kept, RecordTimes& times);
  Context stream(const Variant& variant, RecordTimes& times);
  void ask_zipped(const Variant& variant, const Context& zipped, const RecordTimes& times,
                  std::span<const EvalQuestion> questions, Progress& progress,
                  std::vector<AnswerRecord>& all);
  KeepSet select(const Variant& variant);
  // When the question is known.
  KeepSet select_for(const Variant& variant, const EvalQuestion& question);

  const Model& model_;
  const EvalRun& run_;
  const EvalContext& context_;
  size_t number_;
  const RunHooks& hooks_;
  Zipper zipper_;
  std::map<Method, double> score_s_;
  double query_score_s_ = 0;  // since the last zip for a question
};

KeepSet ContextRun::select(const Variant& variant) {
  if (zipper_.seconds().prefill == 0) zipper_.prefill();
  if (!variant.method->scores) {
    const KvShape& shape = zipper_.full_rows().global.shape();
    return keep_all(shape.n_layer, shape.n_kv_head, zipper_.plan().n_context());
  }
  const Method method = *variant.method->scores;
  const bool scored = method_traits(method).source != ScoreSource::kHeads;
  if (scored && !score_s_.contains(method) && !zipper_.plan().too_short) {
    const double before = zipper_.seconds().score;
    zipper_.scores(method);
    score_s_[method] = zipper_.seconds().score - before;
  }
  Budget budget;
  budget.ratio = variant.ratio;
  return zipper_.select(method, budget, run_.options.allocation);
}

KeepSet ContextRun::select_for(const Variant& variant, const EvalQuestion& question) {
  if (zipper_.seconds().prefill == 0) zipper_.prefill();
  const detail::ModelState& state = *model_.state();
  const ZipPlan& plan = zipper_.plan();
  const Method method = *variant.method->scores;
  Budget budget;
  budget.ratio = variant.ratio;
  if (plan.too_short) return zipper_.select(method, budget, run_.options.allocation);
  std::vector<Token> tokens = plan.layout.question;
  const std::vector<Token> text =
      state.tokenizer.encode_plain(question_prompt(run_.task, question));
  tokens.insert(tokens.end(), text.begin(), text.end());
  tokens.insert(tokens.end(), plan.layout.turn.begin(), plan.layout.turn.end());
  const Stopwatch watch(query_score_s_);
  const Scores scores = query_scores(state, zipper_, method, tokens, hooks_.cancel);
  const ZipOptions options = zip_options(run_.options, 0, hooks_);
  const int64_t n_keep = pairs_for_budget(budget, context_size(state, plan, options));
  return select_pairs(scores, n_keep, run_.options.allocation, method_traits(method).rule);
}

Context ContextRun::cut(const Variant& variant, const KeepSet& kept, RecordTimes& times) {
  const Method method = variant.method->scores.value_or(Method::kKvzip);
  const double compact_before = zipper_.seconds().compact;
  Context zipped = zipper_.copy(method, run_.options.allocation, kept);
  times.prefill_s = zipper_.seconds().prefill;
  times.compact_s = zipper_.seconds().compact - compact_before;
  if (variant.method->query != QuerySetting::kAgnostic) {
    times.score_s = std::exchange(query_score_s_, 0);
  } else if (variant.method->scores) {
    times.score_s = score_s_[method];
  }
  return zipped;
}

Context ContextRun::stream(const Variant& variant, RecordTimes& times) {
  ZipOptions options = zip_options(run_.options, number_, hooks_);
  options.schedule = Schedule::kStreaming;
  options.method = *variant.method->scores;
  options.budget.ratio = variant.ratio;
  Context zipped =
      StreamZipper(model_,
                   plan_context(*model_.state(), context_, run_.options.chat_template, options),
                   options)
          .run();
  times.prefill_s = zipped.report().prefill_s;
  times.score_s = zipped.report().score_s;
  times.compact_s = zipped.report().compact_s;
  return zipped;
}

void ContextRun::ask_all(const Variant& variant, Progress& progress,
                         std::vector<AnswerRecord>& all) {
  const std::span<const EvalQuestion> questions(context_.questions);
  RecordTimes times{.n_threads = model_.state()->options.n_threads};
  const auto ask_after = [&](const KeepSet& kept, std::span<const EvalQuestion> some) {
    const Context zipped = cut(variant, kept, times);
    ask_zipped(variant, zipped, times, some, progress, all);
  };
  if (variant.method->query == QuerySetting::kPrefill) {
    for (size_t at = 0; at < questions.size(); ++at) {
      ask_after(select_for(variant, questions[at]), questions.subspan(at, 1));
    }
  } else if (variant.method->query == QuerySetting::kReuse && !questions.empty()) {
    ask_after(select_for(variant, questions.front()), questions);
  } else if (run_.options.schedule == Schedule::kStreaming && variant.method->scores) {
    const Context zipped = stream(variant, times);
    ask_zipped(variant, zipped, times, questions, progress, all);
  } else {
    ask_after(select(variant), questions);
  }
}

void ContextRun::ask_zipped(const Variant& variant, const Context& zipped, const RecordTimes& times,
                            std::span<const EvalQuestion> questions, Progress& progress,
                            std::vector<AnswerRecord>& all) {
  const ZipReport& report = zipped.report();
  AnswerRecord record{
      .key = {.context = context_.id, .method = variant.method->name, .ratio = variant.ratio},
      .context_tokens = report.context_tokens,
      .pairs_kept = report.pairs_kept,
      .pairs_total = report.pairs_total,
      .kv_bytes = report.kv_bytes_kept,
      .kv_bytes_full = report.kv_bytes_full,
      .times = times};
  std::vector<Question> asked;
  for (const EvalQuestion& question : questions) {
    Question& one = asked.emplace_back(Question{question_prompt(run_.task, question)});
    one.options.max_tokens = run_.options.max_tokens.value_or(answer_tokens(run_.task, question));
    one.options.cancel = hooks_.cancel;
  }
  const auto results = ask_together(zipped, asked, kQuestionsAtOnce,
                                    [&](size_t, const AskResult&) { progress.answered(); });
  stop_if_cancelled(hooks_);
  for (size_t number = 0; number < results.size(); ++number) {
    if (const Error* error = std::get_if<Error>(&results[number])) throw *error;
    const Answer& answer = std::get<Answer>(results[number]);
    const EvalQuestion& question = questions[number];
    record.key.question = question.id;
    record.part = question.part;
    record.output = answer.text;
    record.gold = question.answers;
    record.scores.clear();
    for (const Metric& metric : run_.task.metrics) {
      record.scores.push_back(metric.score(answer.text, question));
    }
    record.output_tokens = answer.output_tokens;
    record.stop_reason = stop_reason_name(answer.stop_reason);
    record.times.prompt_s = answer.prompt_s;
    record.times.decode_s = answer.decode_s;
    all.push_back(record);
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
  run.header = header_json(model, run, data_path);
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
