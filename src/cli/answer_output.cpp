#include "cli/answer_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/exit_code.h"
#include "cli/human.h"
#include "cli/standard_output.h"
#include "cli/terminal.h"

namespace ctxzip::cli {

AnswerOutput::AnswerOutput(bool json, bool with_questions)
    : json_(json),
      stream_(!json && isatty(STDOUT_FILENO) != 0),
      with_questions_(!json && with_questions) {}

std::function<bool(std::string_view)> AnswerOutput::streaming() {
  if (!stream_) return {};
  return [](std::string_view piece) {
    print_out(piece);
    flush_out();
    return true;
  };
}

void AnswerOutput::begin(const std::string& question) {
  question_ = question;
  if (!with_questions_) return;
  print_out(fmt::format("Q: {}\nA: ", question));
  flush_out();
}

void AnswerOutput::end(const Answer& answer) {
  if (json_) {
    answers_.push_back(answer_json(question_, answer));
    return;
  }
  if (!stream_) print_out(answer.text);
  print_out(with_questions_ ? "\n\n" : "\n");
  flush_out();
  if (answer.stop_reason == StopReason::kLength) {
    print_note(fmt::format("the answer was cut after {} tokens (--max-tokens)",
                           format_count(answer.output_tokens)));
  }
}

void AnswerOutput::fail(const Error& error) {
  exit_code_ = error.kind() == ErrorKind::kInvalidArgument ? kExitUsage : kExitFailed;
  if (json_) answers_.push_back({{"question", question_}, {"error", error.what()}});
  if (with_questions_) print_out("\n\n");
  flush_out();
  fmt::print(stderr, "ctxzip: {}\n", error.what());
}

}  // namespace ctxzip::cli
