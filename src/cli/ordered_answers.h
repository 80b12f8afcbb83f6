// Answers that are made side by side, printed in the order of their questions.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/answer_output.h"
#include "ctxzip/session.h"

namespace ctxzip::cli {

// The first question that is not complete is streamed; what comes of later ones waits.
class OrderedAnswers {
 public:
  // Both must outlive it.
  OrderedAnswers(AnswerOutput& output, const std::vector<std::string>& questions);

  // For AskOptions::on_text of a question; empty when nothing is streamed. Refers to this object.
  std::function<bool(std::string_view)> streaming(size_t number);
  // Each question once, in any order. Nothing is printed after the first cancelled answer.
  void add(size_t number, const AskResult& result);

 private:
  void begin();

  AnswerOutput& output_;
  const std::vector<std::string>& questions_;
  std::vector<std::string> waiting_;  // text of questions after the one that is shown
  std::vector<std::optional<AskResult>> results_;
  size_t shown_ = 0;
  bool stopped_ = false;
};

}  // namespace ctxzip::cli
