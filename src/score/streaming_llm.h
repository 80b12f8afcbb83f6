// StreamingLLM: the first tokens and the most recent ones (arXiv 2309.17453, section 3.2).
#pragma once

#include <cstdint>

#include "score/scores.h"

namespace ctxzip {

// Newer rows score higher; sinks that the prefix does not hold score highest.
Scores streaming_llm_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context,
                            int64_t n_prefix);

}  // namespace ctxzip
