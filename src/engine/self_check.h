// How much a compressed cache loses, measured without any query: the change of the teacher-forced
// negative log-likelihood of the context itself, in nats per token.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "attention/segment_table.h"
#include "engine/graph_runner.h"
#include "score/kvzip.h"

namespace ctxzip {

// One pass whose tokens from `first_scored` on are predicted, at most kProbeTokens of them.
struct Probe {
  std::vector<Token> input;
  int64_t first_scored = 0;
};

constexpr int64_t kProbeTokens = 64;

struct SelfCheckProbes {
  // Parts of the reconstruction that scoring saw, spread over the context.
  std::vector<Probe> reconstruction;
  // Held out: other boundaries, another wording, and second halves of sentences given the first.
  std::vector<Probe> held_out;

  bool empty() const { return reconstruction.empty(); }
  int64_t tokens() const;
};

// Up to four places of each kind, fewer for short contexts (one for every 512 tokens).
SelfCheckProbes self_check_probes(const Tokenizer& tokenizer, const PromptLayout& layout,
                                  const std::vector<Token>& context);

// Mean negative log-likelihood of the scored tokens, nats per token. `past` is what the model
// remembers; passes start at `first_position`. 0 probes give 0.
double mean_nll(const detail::ModelState& model, GraphRunner& runner, const SegmentTable& past,
                int64_t first_position, const std::vector<Probe>& probes,
                const CancelToken* cancel);

struct SelfCheck {
  double reconstruction = 0;
  double held_out = 0;
};
SelfCheck run_self_check(const detail::ModelState& model, GraphRunner& runner,
                         const SegmentTable& past, int64_t first_position,
                         const SelfCheckProbes& probes, const CancelToken* cancel);

}  // namespace ctxzip
