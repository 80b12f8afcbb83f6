#include <chrono>
#include <deque>
#include <memory>
#include <optional>

#include "core/fail.h"
#include "core/stopwatch.h"
#include "ctxzip/session.h"
#include "engine/context_tail.h"
#include "engine/generation.h"
#include "engine/turn.h"

namespace ctxzip {
namespace {

// A question that is being answered.
struct Running {
  size_t number;
  ContextTail* tail;
  Generation generation;
  int64_t prompt_tokens = 0;
  double prompt_s = 0;
  std::chrono::steady_clock::time_point started = {};  // of the answer
  std::optional<Token> next = {};
};

class Group {
 public:
  Group(const Context& context, std::span<const Question> questions, int64_t at_once,
        const AskResultFn& on_result)
      : context_(context.state()),
        questions_(questions),
        on_result_(on_result),
        results_(questions.size(), AskResult(Answer())),
        group_(context_) {
    for (int64_t tail = 0; tail < at_once; ++tail) free_.push_back(nullptr);
  }

  std::vector<AskResult> answer_all() {
    while (started_ < questions_.size() || !running_.empty()) {
      while (started_ < questions_.size() && !free_.empty()) start(started_++);
      decode();
    }
    return std::move(results_);
  }

 private:
  void start(size_t number);
  void decode();
  // Takes the finished ones out.
  void settle();
  void complete(size_t number, AskResult result);

  std::shared_ptr<const detail::ContextState> context_;
  std::span<const Question> questions_;
  const AskResultFn& on_result_;
  std::vector<AskResult> results_;
  TailGroup group_;
  std::vector<std::unique_ptr<ContextTail>> tails_;
  std::vector<ContextTail*> free_;  // null: not made yet
  std::deque<Running> running_;
  size_t started_ = 0;
};

void Group::complete(size_t number, AskResult result) {
  results_[number] = std::move(result);
  if (on_result_) on_result_(number, results_[number]);
}

void Group::start(size_t number) {
  const Question& question = questions_[number];
  ContextTail*& slot = free_.back();
  if (slot == nullptr) slot = tails_.emplace_back(std::make_unique<ContextTail>(context_)).get();
  ContextTail& tail = *slot;
  try {
    Running running{number, &tail,
                    Generation(context_->model.state()->tokenizer, question.options)};
    const auto prompt = turn_prompt(*context_, question.text, false, question.options.think);
    check_room(tail, prompt);
    running.prompt_tokens = static_cast<int64_t>(prompt.size());
    const auto start = std::chrono::steady_clock::now();
    try {
      const auto logits = tail.feed(prompt, question.options.cancel);
      running.next = running.generation.next(logits, tail.rows().capacity() - tail.rows().n_rows());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kCancelled) throw;
      running.generation.cancel();
    }
    running.prompt_s = seconds_since(start);
    running.started = std::chrono::steady_clock::now();
    running_.push_back(std::move(running));
    free_.pop_back();
  } catch (const Error& error) {
    tail.rows().truncate(0);
    return complete(number, error);
  }
  settle();
}

void Group::decode() {
  if (running_.empty()) return;
  std::vector<ContextTail*> tails;
  std::vector<Token> tokens;
  const CancelToken* cancel = questions_[running_.front().number].options.cancel;
  for (const Running& each : running_) {
    tails.push_back(each.tail);
    tokens.push_back(*each.next);
  }
  try {
    const std::span<const float> logits = group_.feed(tails, tokens, cancel);
    const size_t n_vocab = logits.size() / tails.size();
    for (size_t lane = 0; lane < tails.size(); ++lane) {
      const Tail& rows = tails[lane]->rows();
      running_[lane].next = running_[lane].generation.next(logits.subspan(lane * n_vocab, n_vocab),
                                                           rows.capacity() - rows.n_rows());
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kCancelled) throw;
    for (Running& each : running_) {
      each.generation.cancel();
      each.next.reset();
    }
  }
  settle();
}

void Group::settle() {
  std::deque<Running> going;
  std::deque<Running> done;
  for (Running& each : running_) {
    if (!each.next) {
      each.tail->rows().truncate(0);
      free_.push_back(each.tail);
    }
    (each.next ? going : done).push_back(std::move(each));
  }
  // The group is whole again before the caller's functions, which may throw, are called.
  running_ = std::move(going);
  for (Running& each : done) {
    Answer answer = each.generation.finish();
    answer.prompt_tokens = each.prompt_tokens;
    answer.prompt_s = each.prompt_s;
    answer.decode_s = seconds_since(each.started);
    complete(each.number, std::move(answer));
  }
}

}  // namespace

std::vector<AskResult> ask_in_turn(Session& session, std::span<const Question> questions,
                                   const AskResultFn& on_result) {
  if (session.turn_tokens() > 0) {
    fail(ErrorKind::kInvalidArgument, "this session holds a chat of {} tokens: reset it first",
         session.turn_tokens());
  }
  std::vector<AskResult> results;
  for (const Question& question : questions) {
    try {
      results.emplace_back(session.ask(question.text, question.options));
    } catch (const Error& error) {
      results.emplace_back(error);
    }
    if (on_result) on_result(results.size() - 1, results.back());
  }
  return results;
}

std::vector<AskResult> ask_together(const Context& context, std::span<const Question> questions,
                                    int64_t at_once, const AskResultFn& on_result) {
  if (at_once < 1 || at_once > kMostAtOnce) {
    fail(ErrorKind::kInvalidArgument, "{} questions at once: expected 1 to {}", at_once,
         kMostAtOnce);
  }
  if (context.state()->stream != nullptr) {
    Session session(context);
    return ask_in_turn(session, questions, on_result);
  }
  return Group(context, questions, at_once, on_result).answer_all();
}

}  // namespace ctxzip
