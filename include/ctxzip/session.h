// Asking a zipped context.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ctxzip/context.h"
#include "ctxzip/error.h"
#include "ctxzip/export.h"
#include "ctxzip/recall.h"

namespace ctxzip {

enum class StopReason { kEnd, kLength, kStopString, kCancelled };
CTXZIP_API std::string_view stop_reason_name(StopReason reason);

struct SamplingOptions {
  double temperature = 0;  // 0: greedy
  int top_k = 40;          // 0: off; this and the next two only act when temperature > 0
  double top_p = 0.95;
  double min_p = 0.05;
  uint32_t seed = 0;
};

struct AskOptions {
  int64_t max_tokens = 256;
  SamplingOptions sampling = {};
  // Generation ends before the first of these; it is not part of the text.
  std::vector<std::string> stop = {};
  bool think = false;  // let a reasoning template think
  // Called with whole UTF-8 characters as they become certain (never part of a stop string); the
  // pieces together are Answer::text. Return false to stop (StopReason::kCancelled).
  std::function<bool(std::string_view piece)> on_text = {};
  const CancelToken* cancel = nullptr;
};

struct Answer {
  std::string text;
  std::vector<Token> tokens;
  StopReason stop_reason = StopReason::kEnd;
  int64_t prompt_tokens = 0;             // fed before the first output token
  int64_t context_tokens_prefilled = 0;  // of the zipped context: always 0, counted not assumed
  int64_t output_tokens = 0;
  double prompt_s = 0;
  double decode_s = 0;
};

namespace detail {
struct SessionState;
}

// One conversation over one Context. Not thread-safe; any number of sessions share a Context.
class CTXZIP_API Session {
 public:
  explicit Session(const Context& context);
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;
  ~Session();

  // Answers over the pristine context: rows of the question and answer are dropped afterwards.
  // Throws Error: kInvalidArgument, kTooLong (nothing left to answer in), kOutOfMemory.
  Answer ask(std::string_view question, const AskOptions& options = {});

  // The same, but the turn stays: later turns see it, and only new tokens are processed.
  Answer chat(std::string_view message, const AskOptions& options = {});
  // Drops all chat turns.
  void reset();
  // Tokens held by chat turns.
  int64_t turn_tokens() const;
  // What the policy did so far in this session; absent for contexts that are not under it.
  std::optional<RecallReport> recall_report() const;

 private:
  std::unique_ptr<detail::SessionState> state_;
};

// A question of several. Its options must outlive the call.
struct Question {
  std::string text;
  AskOptions options = {};
};
using AskResult = std::variant<Answer, Error>;
using AskResultFn = std::function<void(size_t number, const AskResult& result)>;

constexpr int64_t kMostAtOnce = 64;

// Answers questions one after the other, each as Session::ask would; what fails for one question is
// its result. Throws Error{kInvalidArgument} for a session that holds a chat.
CTXZIP_API std::vector<AskResult> ask_in_turn(Session& session, std::span<const Question> questions,
                                              const AskResultFn& on_result = {});

// Answers questions over the pristine context, each as Session::ask would, up to `at_once` of them
// side by side: weights and the context's rows are read once for a token of each. Sums are taken in
// another order than in a session, so an answer may differ where two tokens are equally likely.
// What fails for one question is its result; `on_result` is called as each is complete. Contexts
// under VestigeKV are asked in turn, since each stream has an index of its own. One cancel
// token for all. Throws Error: kInvalidArgument (at_once), kOutOfMemory.
CTXZIP_API std::vector<AskResult> ask_together(const Context& context,
                                               std::span<const Question> questions,
                                               int64_t at_once = 4,
                                               const AskResultFn& on_result = {});

}  // namespace ctxzip
