// One answer in the making: which token comes next, and when it ends.
#pragma once

#include <optional>
#include <span>

#include "ctxzip/session.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"
#include "model/tokenizer.h"

namespace ctxzip {

class Generation {
 public:
  // Both must outlive it. Throws Error{kInvalidArgument} for options out of range.
  Generation(const Tokenizer& tokenizer, const AskOptions& options);

  // Picks a token from logits (n_vocab); the one to feed next, or none when the answer is complete.
  // `room`: rows that can still be added.
  std::optional<Token> next(std::span<const float> logits, int64_t room);
  void cancel() { answer_.stop_reason = StopReason::kCancelled; }

  // The token that was picked last where it is part of the conversation but was not fed.
  std::optional<Token> unfed() const { return unfed_; }

  // The answer so far, its text complete.
  Answer finish();

 private:
  const Tokenizer& tokenizer_;
  const AskOptions& options_;
  Sampler sampler_;
  TextStream stream_;
  Answer answer_;
  std::optional<Token> unfed_;
};

}  // namespace ctxzip
