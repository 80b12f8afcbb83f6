// How much a compressed cache loses, measured without any query: the change of the teacher-forced
// negative log-likelihood of the context itself, in nats per token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "attention/segment_table.h"
#include "engine/graph_runner.h"
#include "score/kvzip.h"

namespace ctxzip {

// One pass whose tokens from `first_scored` on are predicted, at most kProbeTokens of them.
struct Probe {
  std::vector<Token> input;
  int64_t first_scored = 0;
  int64_t end = 0;  // of the part of the context that it asks for
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

// Negative log-likelihood of a token under logits (n_vocab), nats.
double token_nll(std::span<const float> logits, Token token);

// Negative log-likelihood of scored tokens.
struct NllSum {
  double nats = 0;
  int64_t n_tokens = 0;

  double mean() const { return n_tokens == 0 ? 0 : nats / static_cast<double>(n_tokens); }
  void add(const NllSum& other) {
    nats += other.nats;
    n_tokens += other.n_tokens;
  }
};

// `past` is what the model remembers; passes start at `first_position`.
NllSum sum_nll(const detail::ModelState& model, GraphRunner& runner, const SegmentTable& past,
               int64_t first_position, std::span<const Probe> probes, const CancelToken* cancel);

// Means, nats per token.
struct SelfCheck {
  double reconstruction = 0;
  double held_out = 0;
};
SelfCheck run_self_check(const detail::ModelState& model, GraphRunner& runner,
                         const SegmentTable& past, int64_t first_position,
                         const SelfCheckProbes& probes, const CancelToken* cancel);

}  // namespace ctxzip
