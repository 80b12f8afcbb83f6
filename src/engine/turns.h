// What a session adds tokens to: rows after a zipped context, or a stream under VestigeKV.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ctxzip/progress.h"
#include "engine/context_state.h"

namespace ctxzip {

class Turns {
 public:
  Turns() = default;
  virtual ~Turns() = default;
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Logits (n_vocab) after the last token, valid until the next feed. Throws Error: kOutOfMemory,
  // kIo, kCancelled (tokens of whole batches stay).
  virtual std::span<const float> feed(std::span<const Token> tokens, const CancelToken* cancel) = 0;
  // Tokens after the context, and how many more fit.
  virtual int64_t n_rows() const = 0;
  virtual int64_t room() const = 0;
  // From here on nothing is cut below the present end, unless to nothing.
  virtual void begin_turn() = 0;
  // To 0 or to where the turn began.
  virtual void truncate(int64_t n_rows) = 0;
};

}  // namespace ctxzip
