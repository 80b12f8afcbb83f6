#include "engine/generation.h"

#include "core/fail.h"

namespace ctxzip {

Generation::Generation(const Tokenizer& tokenizer, const AskOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      sampler_(options.sampling),
      stream_(options.stop, options.on_text) {
  if (options.max_tokens < 0) {
    fail(ErrorKind::kInvalidArgument, "max tokens is {}: expected 0 or more", options.max_tokens);
  }
}

std::optional<Token> Generation::next(std::span<const float> logits, int64_t room) {
  unfed_.reset();
  answer_.stop_reason = StopReason::kLength;
  if (answer_.output_tokens == options_.max_tokens) return std::nullopt;
  const Token token = sampler_.pick(logits);
  if (tokenizer_.is_end(token)) {
    // The template's next turn brings its own end of turn.
    answer_.stop_reason = StopReason::kEnd;
    return std::nullopt;
  }
  answer_.tokens.push_back(token);
  ++answer_.output_tokens;
  unfed_ = token;
  const TextStream::State state = stream_.push(tokenizer_.piece(token));
  if (state == TextStream::State::kStopString) {
    answer_.stop_reason = StopReason::kStopString;
    return std::nullopt;
  }
  const bool cancelled = options_.cancel != nullptr && options_.cancel->cancelled();
  if (state == TextStream::State::kRefused || cancelled) {
    answer_.stop_reason = StopReason::kCancelled;
    return std::nullopt;
  }
  if (answer_.output_tokens == options_.max_tokens || room == 0) return std::nullopt;
  return token;
}

Answer Generation::finish() {
  if (answer_.stop_reason != StopReason::kStopString) stream_.finish();
  answer_.text = stream_.text();
  return answer_;
}

}  // namespace ctxzip
