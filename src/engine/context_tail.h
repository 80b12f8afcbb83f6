// Rows after a zipped context, and the passes that add to them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/cache_attention.h"
#include "attention/segment_table.h"
#include "cache/tail.h"
#include "engine/context_state.h"
#include "engine/graph_runner.h"
#include "engine/turns.h"

namespace ctxzip {

// Not thread-safe; any number of tails share a context.
class ContextTail final : public Turns {
 public:
  // Throws Error{kMismatch} if the model computes other rows than the context has.
  explicit ContextTail(std::shared_ptr<const detail::ContextState> context);

  std::span<const float> feed(std::span<const Token> tokens, const CancelToken* cancel) override;
  int64_t n_rows() const override { return rows_.n_rows(); }
  int64_t room() const override { return rows_.capacity() - rows_.n_rows(); }
  void begin_turn() override { rows_.begin_turn(); }
  void truncate(int64_t n_rows) override { rows_.truncate(n_rows); }

  Tail& rows() { return rows_; }
  const Tail& rows() const { return rows_; }
  const detail::ContextState& context() const { return *context_; }
  // Where the next token goes.
  AppendTarget target();
  int64_t next_position() const { return context_->rows.n_positions() + rows_.n_rows(); }

 private:
  std::shared_ptr<const detail::ContextState> context_;
  SegmentTable past_;
  Tail rows_;
  CacheAttention attention_;
  GraphRunner prompt_runner_;
  GraphRunner decode_runner_;  // keeps its graph from token to token
};

// Decodes one token of each of several tails over the same context in one pass: weights and the
// context's rows are read once for all of them.
class TailGroup {
 public:
  explicit TailGroup(std::shared_ptr<const detail::ContextState> context);
  TailGroup(const TailGroup&) = delete;
  TailGroup& operator=(const TailGroup&) = delete;

  // Token i to tail i; the tails are distinct. Logits (n_tails, n_vocab), valid until the next
  // feed. Models with recurrent layers take one tail after the other: each has states of its own.
  // Throws Error: kOutOfMemory, kCancelled.
  std::span<const float> feed(std::span<ContextTail* const> tails, std::span<const Token> tokens,
                              const CancelToken* cancel);

 private:
  std::span<const float> feed_in_turn(std::span<ContextTail* const> tails,
                                      std::span<const Token> tokens, const CancelToken* cancel);

  std::shared_ptr<const detail::ContextState> context_;
  SegmentTable past_;
  CacheAttention attention_;
  GraphRunner runner_;
  std::vector<float> logits_;  // of tails that went one after the other
};

}  // namespace ctxzip
