// The baseline that knows nothing: a pseudo-random score for every pair.
#pragma once

#include <cstdint>

#include "score/scores.h"

namespace ctxzip {

// Uniform in [0, 1); a function of seed and pair alone, the same on every machine.
Scores random_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context, uint64_t seed);

}  // namespace ctxzip
