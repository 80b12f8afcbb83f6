// Picks the next token from logits through libllama's samplers.
#pragma once

#include <llama-cpp.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ctxzip/model.h"
#include "ctxzip/session.h"

namespace ctxzip {

class Sampler {
 public:
  // Throws Error{kInvalidArgument} for options out of range.
  explicit Sampler(const SamplingOptions& options);

  // `logits` (n_vocab). Greedy ties go to the lower id.
  Token pick(std::span<const float> logits);

 private:
  llama_sampler_ptr chain_;  // null: greedy
  std::vector<llama_token_data> candidates_;
};

}  // namespace ctxzip
