#include "eval/ruler_file.h"

#include <fmt/format.h>

#include "core/fail.h"
#include "eval/json_place.h"

namespace ctxzip::eval {
namespace {

// Where the question of one of RULER's prompts starts.
size_t question_start(std::string_view prompt) {
  for (const std::string_view mark : {"\nQuestion:", "\nWhat "}) {
    const size_t at = prompt.rfind(mark);
    if (at != std::string_view::npos) return at + 1;
  }
  return std::string_view::npos;
}

}  // namespace

TaskData read_ruler(const DataRequest& request) {
  refuse_generator_options(request);
  TaskData data;
  int64_t number = 0;
  read_json_lines(request.path, kRulerFormat, [&](const JsonPlace& row) {
    EvalContext context;
    context.id = std::to_string(number++);
    context.group = context.id;
    EvalQuestion question{.id = "0", .text = {}, .answers = {}};
    if (const auto text = row.find("context")) {
      context.text = text->text();
      question.text = row.at("question").text();
      question.answers = row.at("answer").texts();
    } else {
      const JsonPlace input = row.at("input");
      const std::string prompt = input.text();
      const size_t start = question_start(prompt);
      if (start == std::string::npos)
        input.refuse_text("line that starts with \"Question:\" or \"What\"");
      context.text = prompt.substr(0, start);
      question.text = prompt.substr(start);
      question.answers = row.at("outputs").texts();
    }
    std::erase(question.answers, "");
    if (question.answers.empty()) {
      ++data.n_skipped;
      return;
    }
    context.questions.push_back(std::move(question));
    data.contexts.push_back(std::move(context));
  });
  if (data.contexts.empty()) {
    fail(ErrorKind::kCorruptFile, "{}: has no question with an answer", request.path);
  }
  return data;
}

}  // namespace ctxzip::eval
