// Keys of small norm draw attention: arXiv 2406.11430.
#pragma once

#include <cstdint>

#include "cache/dense_cache.h"
#include "score/scores.h"

namespace ctxzip {

// Minus the Euclidean norm of each key: rows [first_row, first_row + n) of `rows` (global layers)
// become the scores of context tokens [begin, begin + n).
void knorm_scores(const DenseCache& rows, int64_t first_row, int64_t begin, int64_t n,
                  Scores& scores);

}  // namespace ctxzip
