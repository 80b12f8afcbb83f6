// Expected attention (arXiv 2510.00636): the weight that queries like the prefill's own would give
// each key at the positions to come, times the norm of its value.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/score_sink.h"
#include "cache/dense_cache.h"
#include "model/model_state.h"
#include "score/scores.h"

namespace ctxzip {

// Positions after the text over which the queries' rotation is averaged.
constexpr int64_t kFuturePositions = 512;

// Moments of the queries of all tokens but the prefix and the sinks, before rope.
struct QueryMoments {
  int64_t first_query = 0;  // position
  int64_t n_queries = 0;
  std::vector<double> sums;      // (global layer, query head, head_dim)
  std::vector<double> products;  // (global layer, query head, head_dim, head_dim), upper triangle

  QuerySink sink() {
    return {.first_query = first_query, .sums = sums.data(), .products = products.data()};
  }
};
QueryMoments start_moments(const detail::ModelState& model, int64_t n_prefix, int64_t n_context);

// `rows`: the prefilled global rows, n_prefix of them before the context's.
Scores expected_attention_scores(const detail::ModelState& model, const QueryMoments& moments,
                                 const DenseCache& rows, int64_t n_prefix, int64_t n_context);

}  // namespace ctxzip
