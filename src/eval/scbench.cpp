#include "eval/scbench.h"

#include <fmt/format.h>

#include "core/fail.h"

namespace ctxzip::eval {

void read_plain_turn(const JsonPlace& turn, EvalQuestion& question) {
  question.text = turn.at("input").text();
  question.answers = turn.at("answer").texts();
}

std::string with_options(const std::string& question, const std::vector<std::string>& options) {
  std::string text = question;
  for (size_t at = 0; at < options.size(); ++at) {
    text += fmt::format("\n{}. {}", static_cast<char>('A' + at), options[at]);
  }
  return text;
}

TaskData read_scbench(const DataRequest& request, const ScbenchReader& reader) {
  refuse_generator_options(request);
  TaskData data;
  int64_t number = 0;
  read_json_lines(request.path, kScbenchFormat, [&](const JsonPlace& row) {
    EvalContext context;
    context.id = std::to_string(number++);
    const auto repository = row.find("repo");  // several rows may share one
    context.group = repository ? repository->text() : context.id;
    const auto text = row.find("context");
    const std::string given = (text ? *text : row.at("input")).text();
    // An empty context stays one, to be refused as such.
    if (!is_blank(given)) context.text = reader.preamble + given;
    for (const JsonPlace& turn : row.at("multi_turns").items()) {
      EvalQuestion question;
      question.id = std::to_string(context.questions.size());
      (reader.read_turn ? reader.read_turn : read_plain_turn)(turn, question);
      std::erase(question.answers, "");
      if (question.answers.empty()) {
        ++data.n_skipped;
      } else {
        context.questions.push_back(std::move(question));
      }
    }
    if (!context.questions.empty()) data.contexts.push_back(std::move(context));
  });
  if (data.contexts.empty()) {
    fail(ErrorKind::kCorruptFile, "{}: has no question with an answer", request.path);
  }
  return data;
}

}  // namespace ctxzip::eval
