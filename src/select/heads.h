// Eviction by whole heads: which heads keep their context does not depend on the text.
#pragma once

#include <cstdint>
#include <span>

#include "cache/keep_set.h"

namespace ctxzip {

// What a head with a low score keeps of the context. kDuo: the first tokens and the newest ones
// (DuoAttention, arXiv 2410.10819, section 2.3). kDrop: nothing (the code of KVzip's authors).
enum class HeadStructure : uint8_t { kDuo, kDrop };

// kDuo: tokens counted from the start of the prompt, and newest ones; both at most an eighth of a
// short context.
constexpr int64_t kDuoSinkTokens = 64;
constexpr int64_t kDuoRecentTokens = 256;

struct HeadSelection {
  int64_t n_layer = 0;
  int64_t n_kv_head = 0;
  int64_t n_context = 0;
  int64_t n_prefix = 0;
  HeadStructure structure = HeadStructure::kDuo;
};

// Keeps exactly n_keep pairs: what the structure leaves to every head, then whole heads from the
// highest score (layer, kv_head) down, ties to the lower one; the head at the border gets its
// newest tokens. A budget below the structure's own share is spread evenly, newest tokens first
// after the sinks.
KeepSet select_heads(const HeadSelection& selection, std::span<const float> head_scores,
                     int64_t n_keep);

}  // namespace ctxzip
