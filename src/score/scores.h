// Importance of every evictable pair.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ctxzip {

// One importance per evictable pair; higher stays. (layer, kv_head, context position)
struct Scores {
  int64_t n_layer = 0;
  int64_t n_kv_head = 0;
  int64_t n_context = 0;
  std::vector<float> values;

  int64_t pairs() const { return n_layer * n_kv_head * n_context; }
  const float* head(int64_t layer, int64_t kv_head) const {
    return values.data() + (layer * n_kv_head + kv_head) * n_context;
  }
  float* head(int64_t layer, int64_t kv_head) {
    return values.data() + (layer * n_kv_head + kv_head) * n_context;
  }
};

inline Scores filled_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context, float value) {
  Scores scores{.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .values = {}};
  scores.values.assign(static_cast<size_t>(scores.pairs()), value);
  return scores;
}

}  // namespace ctxzip
