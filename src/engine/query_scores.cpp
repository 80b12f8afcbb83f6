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

Scores pass_scores(const detail::ModelState& model, Zipper& zipper, Method method,
                   std::span<const Token> tokens, const CancelToken* cancel) {
  CHECK((method == Method::kH2o || method == Method::kSnapKv) && !tokens.empty());
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  const int64_t n_observed =
      method == Method::kSnapKv ? std::min(kObservedWindow, n_tokens) : n_tokens;
  const FullRows rows = zipper.full_rows();
  const KvShape& shape = rows.global.shape();
  Scores scores =
      start_prefill_scores(method, shape.n_layer, shape.n_kv_head, zipper.plan().n_context());
  SegmentTable past = segment_table(model);
  past.add(rows.global, 0, rows.n_prefix);
  past.add(rows.global, rows.n_prefix, rows.global.n_rows());
  past.add_window(rows.window);
  const ScoreSink sink = question_sink(method, n_tokens - n_observed, scores);
  GraphRunner runner(model);
  run_pass(model, runner, past, 2, &sink, {tokens, rows.global.n_rows(), {}}, {.cancel = cancel});
  finish_question_scores(method, n_observed, model.hp.group(), scores);
  return scores;
}

Scores query_scores(const detail::ModelState& model, Zipper& zipper, Method method,
                    std::span<const Token> question, const CancelToken* cancel) {
  CHECK(knows_queries(method));
  method = method_traits(method).scores_of;
  // Made first: it may prefill again.
  const Scores* const of_text = method == Method::kH2o ? &zipper.scores(method) : nullptr;
  Scores scores = pass_scores(model, zipper, method, question, cancel);
  for (size_t pair = 0; of_text != nullptr && pair < scores.values.size(); ++pair) {
    scores.values[pair] = std::max(scores.values[pair], of_text->values[pair]);
  }
  return scores;
}

}  // namespace ctxzip
