// A session's turns in a stream under VestigeKV.
#pragma once

#include <memory>

#include "engine/recall_stream.h"
#include "engine/turns.h"

namespace ctxzip {

// Starts from what the context holds (ContextState::stream is set) and grows from there; a turn
// that is cut leaves nothing behind, a calibration made meanwhile included.
class StreamTurns final : public Turns {
 public:
  // Throws as RecallStream.
  explicit StreamTurns(std::shared_ptr<const detail::ContextState> context);

  std::span<const float> feed(std::span<const Token> tokens, const CancelToken* cancel) override;
  int64_t n_rows() const override { return stream_.n_rows() - base_.n_rows(); }
  int64_t room() const override { return stream_.capacity() - stream_.n_rows(); }
  void begin_turn() override { turn_ = stream_.mark(); }
  void truncate(int64_t n_rows) override;
  RecallReport report() const { return stream_.report(); }

 private:
  std::shared_ptr<const detail::ContextState> context_;
  RecallStream stream_;
  StreamMark base_;
  StreamMark turn_;
};

}  // namespace ctxzip
