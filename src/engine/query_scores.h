// The query-aware settings that KVzip is compared with (arXiv 2505.23416, figure 1): a context is
// scored when one question is already known.
#pragma once

#include <span>

#include "engine/zipper.h"

namespace ctxzip {

// Whether a method can take a question into account: h2o, snapkv, pyramidkv.
bool knows_queries(Method method);

// What a pass of `tokens` after the prefilled context shows of each pair: kH2o, the largest softmax
// weight of all its queries; kSnapKv, the mean weight of its last 32, pooled. The softmax runs over
// prefix, context and the pass's own rows. Throws Error: kOutOfMemory, kCancelled.
Scores pass_scores(const detail::ModelState& model, Zipper& zipper, Method method,
                   std::span<const Token> tokens, const CancelToken* cancel);

// As Zipper::scores after a prefill, with the question's tokens as if they ended the text: SnapKV
// observes the last 32 of them (fewer if the question is shorter) and protects no row of the
// context, H2O takes their weights into its maxima. Throws Error: kOutOfMemory, kCancelled.
Scores query_scores(const detail::ModelState& model, Zipper& zipper, Method method,
                    std::span<const Token> question, const CancelToken* cancel);

}  // namespace ctxzip
