#include "ctxzip/session.h"

#include <algorithm>
#include <chrono>

#include "cache/tail.h"
#include "core/fail.h"
#include "core/utf8.h"
#include "engine/context_state.h"
#include "engine/graph_runner.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"

namespace ctxzip {
namespace {

constexpr int64_t kPromptBatch = 512;
// Rows a session may add when the context itself already fills the trained length.
constexpr int64_t kTailBeyondTraining = 8192;
constexpr int64_t kShortestTail = 256;

int64_t tail_capacity(const detail::ContextState& context) {
  const int64_t room = context.model.state()->hp.n_ctx_train - context.rows.n_positions();
  return room >= kShortestTail ? room : kTailBeyondTraining;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

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
  explicit SessionState(const Context& handle)
      : context(handle.state()),
        model(*context->model.state()),
        past(segment_table(model)),
        tail(model.hp.layers, global_shape(model), local_shape(model), context->rows.states,
             tail_capacity(*context)),
        prompt_runner(model),
        decode_runner(model) {
    RowType stored = context->rows.global.shape.row_type;
    if (is_quantised(stored)) stored = RowType::kF16;  // as its windows and every tail
    const RowType wanted = global_shape(model).row_type;
    if (stored != wanted) {
      fail(ErrorKind::kMismatch, "the context has {} rows, but the model was loaded for {} rows",
           row_type_name(stored), row_type_name(wanted));
    }
    past.add(context->rows);
    attention = std::make_unique<CacheAttention>(attention_setup(model), past,
                                                 static_cast<int>(past.size()), nullptr);
  }

  std::shared_ptr<const ContextState> context;
  const ModelState& model;
  SegmentTable past;
  Tail tail;
  std::unique_ptr<CacheAttention> attention;
  GraphRunner prompt_runner;
  GraphRunner decode_runner;  // keeps its graph from token to token
  // Generated but not yet in the tail: fed before the next chat turn.
  std::vector<Token> pending;

  // Logits after the last token.
  std::span<const float> feed(std::span<const Token> tokens, const CancelToken* cancel);
  std::vector<Token> prompt_of(std::string_view text, bool later_turn, bool think) const;
  Answer generate(const std::vector<Token>& prompt, const AskOptions& options);
  void decode(std::span<const float> logits, const AskOptions& options, TextStream& stream,
              Answer& answer);
};

std::span<const float> SessionState::feed(std::span<const Token> tokens,
                                          const CancelToken* cancel) {
  std::span<const float> logits;
  while (!tokens.empty()) {
    const size_t n = std::min<size_t>(tokens.size(), kPromptBatch);
    const bool last = n == tokens.size();
    const std::vector<int32_t> rows(last ? 1 : 0, static_cast<int32_t>(n - 1));
    const int64_t first = tail.n_rows();
    attention->set_target({.global = {&tail.global(), first},
                           .local = {&tail.local(), first},
                           .states = {&tail.states().now(), &tail.states().next()}});
    GraphRunner& runner = n == 1 ? decode_runner : prompt_runner;
    logits = runner.run({tokens.first(n), context->rows.n_positions() + first, rows}, *attention,
                        attention->own_row_capacity(), {.cancel = cancel});
    tail.extend(static_cast<int64_t>(n));
    tokens = tokens.subspan(n);
  }
  return logits;
}

std::vector<Token> SessionState::prompt_of(std::string_view text, bool later_turn,
                                           bool think) const {
  const CtzMeta& meta = context->meta;
  std::vector<Token> tokens = later_turn ? meta.next_turn_tokens : meta.question_tokens;
  if (model.tokenizer.has_text()) {
    const auto words = model.tokenizer.encode_plain(repair_utf8(text));
    tokens.insert(tokens.end(), words.begin(), words.end());
  }
  // The stored turn is rendered without thinking; asking for it is the one reason to render anew.
  const auto turn = think ? model.tokenizer.layout(std::nullopt, true).turn : meta.turn_tokens;
  tokens.insert(tokens.end(), turn.begin(), turn.end());
  if (tokens.empty())
    fail(ErrorKind::kInvalidArgument, "the question is empty and the model has no template");
  return tokens;
}

void SessionState::decode(std::span<const float> logits, const AskOptions& options,
                          TextStream& stream, Answer& answer) {
  Sampler sampler(options.sampling);
  answer.stop_reason = StopReason::kLength;
  while (answer.output_tokens < options.max_tokens) {
    const Token token = sampler.pick(logits);
    pending.assign(1, token);
    if (model.tokenizer.is_end(token)) {
      // The template's next turn brings its own end of turn.
      pending.clear();
      answer.stop_reason = StopReason::kEnd;
      return;
    }
    answer.tokens.push_back(token);
    ++answer.output_tokens;
    const TextStream::State state = stream.push(model.tokenizer.piece(token));
    if (state == TextStream::State::kStopString) {
      answer.stop_reason = StopReason::kStopString;
      return;
    }
    const bool cancelled = options.cancel != nullptr && options.cancel->cancelled();
    if (state == TextStream::State::kRefused || cancelled) {
      answer.stop_reason = StopReason::kCancelled;
      return;
    }
    if (answer.output_tokens == options.max_tokens || tail.n_rows() == tail.capacity()) return;
    logits = feed({&token, 1}, options.cancel);
    pending.clear();
  }
}

Answer SessionState::generate(const std::vector<Token>& prompt, const AskOptions& options) {
  if (options.max_tokens < 0) {
    fail(ErrorKind::kInvalidArgument, "max tokens is {}: expected 0 or more", options.max_tokens);
  }
  const int64_t room = tail.capacity() - tail.n_rows();
  const int64_t n_prompt = static_cast<int64_t>(prompt.size());
  if (n_prompt > room) {
    fail(ErrorKind::kTooLong,
         "the prompt has {} tokens, but only {} fit after a context of {} and {} tokens of turns",
         n_prompt, room, context->rows.n_positions(), tail.n_rows());
  }
  Answer answer;
  answer.prompt_tokens = n_prompt;
  TextStream stream(options.stop, options.on_text);
  try {
    auto start = std::chrono::steady_clock::now();
    const auto logits = feed(prompt, options.cancel);
    pending.clear();
    answer.prompt_s = seconds_since(start);
    start = std::chrono::steady_clock::now();
    decode(logits, options, stream, answer);
    answer.decode_s = seconds_since(start);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCancelled) throw;
    answer.stop_reason = StopReason::kCancelled;
  }
  if (answer.stop_reason != StopReason::kStopString) stream.finish();
  answer.text = stream.text();
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
  if (state.tail.n_rows() > 0) {
    fail(ErrorKind::kInvalidArgument,
         "this session holds a chat of {} tokens: reset it, or ask in another session",
         state.tail.n_rows());
  }
  const std::vector<Token> prompt = state.prompt_of(question, false, options.think);
  struct DropRows {
    detail::SessionState& state;
    ~DropRows() {
      state.tail.truncate(0);
      state.pending.clear();
    }
  } const drop_rows{state};
  return state.generate(prompt, options);
}

Answer Session::chat(std::string_view message, const AskOptions& options) {
  detail::SessionState& state = *state_;
  const int64_t turns = state.tail.n_rows();
  // A turn that fails is cut off again.
  state.tail.begin_turn();
  std::vector<Token> prompt = state.pending;
  const std::vector<Token> pending = state.pending;
  const auto words = state.prompt_of(message, turns > 0, options.think);
  prompt.insert(prompt.end(), words.begin(), words.end());
  const auto forget_turn = [&] {
    state.tail.truncate(turns);
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
  state_->tail.truncate(0);
  state_->pending.clear();
}

int64_t Session::turn_tokens() const { return state_->tail.n_rows(); }

}  // namespace ctxzip
