// Printing answers as they come: streamed on a terminal, whole in a pipe, collected for --json.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/json_output.h"
#include "ctxzip/error.h"
#include "ctxzip/session.h"

namespace ctxzip::cli {

class AnswerOutput {
 public:
  // `with_questions`: each answer is introduced by its question.
  AnswerOutput(bool json, bool with_questions);

  // For AskOptions::on_text; empty when nothing is streamed. Refers to this object.
  std::function<bool(std::string_view)> streaming();

  // Around each question; `fail` instead of `end` when there is no answer.
  void begin(const std::string& question);
  void end(const Answer& answer);
  void fail(const Error& error);

  const Json& answers() const { return answers_; }
  // That of the last failure.
  int exit_code() const { return exit_code_; }

 private:
  bool json_;
  bool stream_;
  bool with_questions_;
  std::string question_;
  Json answers_ = Json::array();
  int exit_code_ = 0;
};

}  // namespace ctxzip::cli
