// Rows that a method keeps before all others: the text's first tokens, or its newest.
#pragma once

#include <algorithm>
#include <cstdint>

#include "score/scores.h"

namespace ctxzip {

// Attention sinks (StreamingLLM, arXiv 2309.17453, section 3.2), counted from the start of the
// prompt.
constexpr int64_t kSinkTokens = 4;

// Context tokens among the sinks: the protected prefix usually holds them all.
inline int64_t context_sinks(int64_t n_prefix, int64_t n_context) {
  return std::clamp<int64_t>(kSinkTokens - n_prefix, 0, n_context);
}

// Gives rows [begin, end) of every head scores above `highest`, the newest the most: a budget below
// their number keeps the newest.
inline void protect_rows(int64_t begin, int64_t end, float highest, Scores& scores) {
  for (int64_t head = 0; head < scores.n_layer * scores.n_kv_head; ++head) {
    float* values = scores.values.data() + head * scores.n_context;
    for (int64_t row = begin; row < end; ++row) {
      values[row] = (highest + 1) * (1 + static_cast<float>(row - begin + 1) / 1024);
    }
  }
}

}  // namespace ctxzip
