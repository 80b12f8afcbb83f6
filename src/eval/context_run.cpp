#include "eval/context_run.h"

#include <utility>

#include "core/fail.h"
#include "core/stopwatch.h"
#include "ctxzip/session.h"
#include "engine/document_text.h"
#include "engine/query_scores.h"
#include "engine/stream_zip.h"
#include "score/method_table.h"
#include "select/select.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kQuestionsAtOnce = 8;

// The first method that looks at the prefill's attention: the prefill that all share notes it down.
std::optional<Method> noted_by_prefill(const RunOptions& options) {
  for (const EvalMethod* method : options.methods) {
    if (!method->scores || method->query != QuerySetting::kAgnostic) continue;
    const ScoreSource source = method_traits(*method->scores).source;
    if (source == ScoreSource::kPrefillAttention || source == ScoreSource::kQueryMoments) {
      return method->scores;
    }
  }
  return std::nullopt;
}

void stop_if_cancelled(const RunHooks& hooks) {
  if (hooks.cancel != nullptr && hooks.cancel->cancelled())
    fail(ErrorKind::kCancelled, "interrupted");
}

}  // namespace

ZipOptions zip_options(const RunOptions& options, size_t context_number, const RunHooks& hooks) {
  ZipOptions zip;
  if (const auto method = noted_by_prefill(options)) zip.method = *method;
  zip.allocation = options.allocation;
  zip.heads = options.heads;
  zip.recon_attention = options.recon_attention;
  zip.kv = options.kv;
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

KeepSet ContextRun::select(const Variant& variant) {
  if (zipper_.figures().prefill == 0) zipper_.prefill();
  if (!variant.method->scores) {
    const KvShape& shape = zipper_.full_rows().global.shape();
    return keep_all(shape.n_layer, shape.n_kv_head, zipper_.plan().n_context());
  }
  const Method method = *variant.method->scores;
  const bool scored = method_traits(method).source != ScoreSource::kHeads;
  if (scored && !score_s_.contains(method) && !zipper_.plan().too_short) {
    const double before = zipper_.figures().score;
    zipper_.scores(method);
    score_s_[method] = zipper_.figures().score - before;
  }
  Budget budget;
  budget.ratio = variant.ratio;
  return zipper_.select(method, budget, run_.options.allocation);
}

KeepSet ContextRun::select_for(const Variant& variant, const EvalQuestion& question) {
  if (zipper_.figures().prefill == 0) zipper_.prefill();
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
  const double compact_before = zipper_.figures().compact;
  // What everything is compared with stays as it is.
  const KvType kv = variant.method->scores ? run_.options.kv : KvType::kF16;
  Context zipped = zipper_.copy(method, run_.options.allocation, kept, kv);
  times.prefill_s = zipper_.figures().prefill;
  times.compact_s = zipper_.figures().compact - compact_before;
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

}  // namespace ctxzip::eval
