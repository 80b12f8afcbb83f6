#include "score/random.h"

#include <cstddef>

namespace ctxzip {
namespace {

uint64_t split_mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

Scores random_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context, uint64_t seed) {
  Scores scores{.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .values = {}};
  scores.values.resize(static_cast<size_t>(scores.pairs()));
  const uint64_t stream = split_mix(seed);
  for (size_t pair = 0; pair < scores.values.size(); ++pair) {
    const uint64_t bits = split_mix(stream ^ split_mix(pair)) >> 40;  // 24 bits: exact in a float
    scores.values[pair] = static_cast<float>(bits) * 0x1p-24f;
  }
  return scores;
}

}  // namespace ctxzip
