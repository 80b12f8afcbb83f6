#include "cli/ordered_answers.h"

namespace ctxzip::cli {

OrderedAnswers::OrderedAnswers(AnswerOutput& output, const std::vector<std::string>& questions)
    : output_(output),
      questions_(questions),
      waiting_(questions.size()),
      results_(questions.size()) {
  begin();
}

void OrderedAnswers::begin() {
  if (shown_ == questions_.size()) return;
  output_.begin(questions_[shown_]);
  if (waiting_[shown_].empty()) return;
  output_.streaming()(waiting_[shown_]);
}

std::function<bool(std::string_view)> OrderedAnswers::streaming(size_t number) {
  if (!output_.streaming()) return {};
  return [this, number](std::string_view piece) {
    if (number == shown_) return output_.streaming()(piece);
    waiting_[number] += piece;
    return true;
  };
}

void OrderedAnswers::add(size_t number, const AskResult& result) {
  results_[number] = result;
  while (!stopped_ && shown_ < questions_.size() && results_[shown_]) {
    if (const Answer* answer = std::get_if<Answer>(&*results_[shown_])) {
      output_.end(*answer);
      stopped_ = answer->stop_reason == StopReason::kCancelled;
    } else {
      output_.fail(std::get<Error>(*results_[shown_]));
    }
    ++shown_;
    if (!stopped_) begin();
  }
}

}  // namespace ctxzip::cli
