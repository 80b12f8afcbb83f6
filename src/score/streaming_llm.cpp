#include "score/streaming_llm.h"

#include "score/protected_rows.h"

namespace ctxzip {

Scores streaming_llm_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context,
                            int64_t n_prefix) {
  Scores scores = filled_scores(n_layer, n_kv_head, n_context, 0);
  for (int64_t pair = 0; pair < scores.pairs(); ++pair) {
    scores.values[static_cast<size_t>(pair)] = static_cast<float>(pair % n_context);
  }
  protect_rows(0, context_sinks(n_prefix, n_context), static_cast<float>(n_context), scores);
  return scores;
}

}  // namespace ctxzip
