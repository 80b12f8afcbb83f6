#include "ctxzip/session.h"

#include <algorithm>
#include <chrono>

#include "core/fail.h"
#include "core/stopwatch.h"
#include "engine/context_tail.h"
#include "engine/generation.h"
#include "engine/stream_turns.h"
#include "engine/turn.h"

namespace ctxzip {
std::string_view stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::kEnd:
      return "end";
    case StopReason::kLength:
      return "length";
    case StopReason::kStopString:
      return "stop_string";
    case StopReason::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

namespace detail {

struct SessionState {
  explicit SessionState(const Context& handle) : context(handle.state()) {
    if (context->stream != nullptr) {
      auto stream = std::make_unique<StreamTurns>(context);
      stream_turns = stream.get();
      turns = std::move(stream);
    } else {
      turns = std::make_unique<ContextTail>(context);
    }
  }

  std::shared_ptr<const ContextState> context;
  std::unique_ptr<Turns> turns;
  StreamTurns* stream_turns = nullptr;  // the same, if under the policy
  // Generated but not yet among the turns: fed before the next chat turn.
  std::vector<Token> pending;

  Answer generate(const std::vector<Token>& prompt, const AskOptions& options);
  void decode(const std::vector<Token>& prompt, const AskOptions& options, Generation& generation,
              Answer& times);
};

void SessionState::decode(const std::vector<Token>& prompt, const AskOptions& options,
                          Generation& generation, Answer& times) {
  auto start = std::chrono::steady_clock::now();
  std::span<const float> logits = turns->feed(prompt, options.cancel);
  pending.clear();
  times.prompt_s = seconds_since(start);
  start = std::chrono::steady_clock::now();
  while (const auto token = generation.next(logits, turns->room())) {
    logits = turns->feed({&*token, 1}, options.cancel);
  }
  times.decode_s = seconds_since(start);
}

Answer SessionState::generate(const std::vector<Token>& prompt, const AskOptions& options) {
  Generation generation(context->model.state()->tokenizer, options);
  check_room(*turns, prompt);
  Answer times;
  try {
    decode(prompt, options, generation, times);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCancelled) throw;
    generation.cancel();
  }
  if (generation.unfed()) pending.assign(1, *generation.unfed());
  Answer answer = generation.finish();
  answer.prompt_tokens = static_cast<int64_t>(prompt.size());
  answer.prompt_s = times.prompt_s;
  answer.decode_s = times.decode_s;
  return answer;
}

}  // namespace detail

Session::Session(const Context& context)
    : state_(std::make_unique<detail::SessionState>(context)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Answer Session::ask(std::string_view question, const AskOptions& options) {
  detail::SessionState& state = *state_;
  if (turn_tokens() > 0) {
    fail(ErrorKind::kInvalidArgument,
         "this session holds a chat of {} tokens: reset it, or ask in another session",
         turn_tokens());
  }
  const std::vector<Token> prompt = turn_prompt(*state.context, question, false, options.think);
  try {
    Answer answer = state.generate(prompt, options);
    reset();
    return answer;
  } catch (...) {
    reset();
    throw;
  }
}

Answer Session::chat(std::string_view message, const AskOptions& options) {
  detail::SessionState& state = *state_;
  Turns& rows = *state.turns;
  const int64_t turns = rows.n_rows();
  // A turn that fails is cut off again.
  rows.begin_turn();
  std::vector<Token> prompt = state.pending;
  const std::vector<Token> pending = state.pending;
  const auto words = turn_prompt(*state.context, message, turns > 0, options.think);
  prompt.insert(prompt.end(), words.begin(), words.end());
  const auto forget_turn = [&] {
    rows.truncate(turns);
    state.pending = pending;
  };
  try {
    Answer answer = state.generate(prompt, options);
    // Cancelled before an answer began: as if the message had not been sent.
    if (answer.stop_reason == StopReason::kCancelled && answer.output_tokens == 0) forget_turn();
    return answer;
  } catch (...) {
    forget_turn();
    throw;
  }
}

void Session::reset() {
  state_->turns->truncate(0);
  state_->pending.clear();
}

int64_t Session::turn_tokens() const { return state_->turns->n_rows(); }

std::optional<RecallReport> Session::recall_report() const {
  if (state_->stream_turns == nullptr) return std::nullopt;
  return state_->stream_turns->report();
}

}  // namespace ctxzip
