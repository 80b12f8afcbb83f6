// Scores from the attention of the prefill itself: H2O and SnapKV (and PyramidKV, whose scores are
// SnapKV's).
#pragma once

#include <cstdint>

#include "attention/score_sink.h"
#include "ctxzip/method.h"
#include "score/scores.h"

namespace ctxzip {

// Newest tokens of the text whose queries SnapKV looks at and whose rows it keeps.
constexpr int64_t kObservedWindow = 32;
// SnapKV smooths along the text by the maximum over so many tokens (arXiv 2404.14469, section 4).
constexpr int64_t kPoolTokens = 7;

// Before the prefill: scores to fill, and the sink that fills them. `method` is kH2o, kH2oMean or
// kSnapKv.
Scores start_prefill_scores(Method method, int64_t n_layer, int64_t n_kv_head, int64_t n_context);
ScoreSink prefill_sink(Method method, int64_t n_prefix, Scores& scores);

// After it. kH2o: the largest softmax weight that any query gave the pair. kH2oMean: the mean
// weight over the queries that saw it and the heads of its group. kSnapKv: the mean weight over the
// window's queries and the group, then pooled; the window's own rows come first.
void finish_prefill_scores(Method method, int64_t group, Scores& scores);

// The same for a pass with a question after the text (kH2o, kSnapKv): its segments are prefix,
// context and the question's own rows, of which those from `first_query` on are looked at.
// finish: kSnapKv as above, but without a window in the context.
ScoreSink question_sink(Method method, int64_t first_query, Scores& scores);
void finish_question_scores(Method method, int64_t n_queries, int64_t group, Scores& scores);

}  // namespace ctxzip
