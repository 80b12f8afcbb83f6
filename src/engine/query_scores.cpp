#include "engine/query_scores.h"

#include <algorithm>

#include "core/fail.h"
#include "engine/passes.h"
#include "score/prefill_attention.h"

namespace ctxzip {

bool knows_queries(Method method) {
  const Method scores = method_traits(method).scores_of;
  return scores == Method::kH2o || scores == Method::kSnapKv;
}

Scores query_scores(const detail::ModelState& model, Zipper& zipper, Method method,
                    std::span<const Token> question, const CancelToken* cancel) {
  CHECK(knows_queries(method) && !question.empty());
  method = method_traits(method).scores_of;
  const auto n_question = static_cast<int64_t>(question.size());
  const int64_t n_observed =
      method == Method::kSnapKv ? std::min(kObservedWindow, n_question) : n_question;
  // Made first: it may prefill again.
  const Scores* const of_text = method == Method::kH2o ? &zipper.scores(method) : nullptr;
  const FullRows rows = zipper.full_rows();
  const KvShape& shape = rows.global.shape();
  const int64_t n_context = zipper.plan().n_context();
  Scores scores = start_prefill_scores(method, shape.n_layer, shape.n_kv_head, n_context);
  SegmentTable past = segment_table(model);
  past.add(rows.global, 0, rows.n_prefix);
  past.add(rows.global, rows.n_prefix, rows.global.n_rows());
  past.add_window(rows.window);
  const ScoreSink sink = question_sink(method, n_question - n_observed, scores);
  GraphRunner runner(model);
  run_pass(model, runner, past, 2, &sink, {question, rows.global.n_rows(), {}}, {.cancel = cancel});
  finish_question_scores(method, n_observed, model.hp.group(), scores);
  for (size_t pair = 0; of_text != nullptr && pair < scores.values.size(); ++pair) {
    scores.values[pair] = std::max(scores.values[pair], of_text->values[pair]);
  }
  return scores;
}

}  // namespace ctxzip
