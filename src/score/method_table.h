// What each method's scores are made from, and how it shares a budget.
#pragma once

#include <cstdint>

#include "ctxzip/method.h"
#include "score/budget_rule.h"
#include "score/kvzip.h"

namespace ctxzip {

enum class ScoreSource : uint8_t {
  kReconstruction,    // passes that repeat the context
  kPrefillAttention,  // weights of the prefill's own attention
  kQueryMoments,      // means and covariances of the prefill's queries
  kRows,              // the stored keys
  kUnrotatedRows,     // the stored keys or latent rows of models that do not rotate them
  kPlaces,            // nothing but layer, head and position
  kHeads,             // none: loaded head scores decide (select/heads.h)
};

struct MethodTraits {
  MethodInfo info;
  ScoreSource source = ScoreSource::kPlaces;
  Method scores_of;         // the method whose scores it takes; itself if its own
  ReconVariant recon = {};  // kReconstruction
  BudgetRule rule = {};
  bool streams = false;  // works chunk by chunk (Schedule::kStreaming)
};

const MethodTraits& method_traits(Method method);

}  // namespace ctxzip
