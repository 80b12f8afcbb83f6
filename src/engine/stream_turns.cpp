#include "engine/stream_turns.h"

#include "core/fail.h"

namespace ctxzip {

StreamTurns::StreamTurns(std::shared_ptr<const detail::ContextState> context)
    : context_(std::move(context)),
      stream_(context_->model, *context_->stream, context_->rows, context_->meta.recall->layers),
      base_(stream_.mark()),
      turn_(base_) {}

std::span<const float> StreamTurns::feed(std::span<const Token> tokens, const CancelToken* cancel) {
  if (tokens.size() == 1) return stream_.decode(tokens[0], cancel);
  return stream_.prefill(tokens, cancel);
}

void StreamTurns::truncate(int64_t n_rows) {
  if (n_rows == 0) {
    if (this->n_rows() > 0) stream_.rewind(base_);
    turn_ = base_;
    return;
  }
  CHECK(n_rows == turn_.n_rows() - base_.n_rows());
  stream_.rewind(turn_);
}

}  // namespace ctxzip
