// SQuAD 1.1 and 2.0, and what shares their format (XQuAD, MLQA, ...):
// {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers":
// [{"text"}]}]}]}]}
#include "eval/task_squad.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/fail.h"
#include "eval/json_place.h"
#include "eval/metrics.h"
#include "eval/task_list.h"

namespace ctxzip::eval {
namespace {

constexpr const char* kFormat = "SQuAD JSON, version 1.1 or 2.0";

constexpr std::array kMetrics{
    Metric{"substring", of_answers<substring_match>},
    Metric{"f1", of_answers<token_f1>},
    Metric{"exact", of_answers<exact_match>},
};

EvalQuestion read_question(const JsonPlace& place) {
  EvalQuestion question{
      .id = place.at("id").text(), .text = place.at("question").text(), .answers = {}};
  for (const JsonPlace& answer : place.at("answers").items()) {
    std::string text = answer.at("text").text();
    // Annotators often agree; an empty string would match anything.
    const auto& known = question.answers;
    if (text.empty() || std::find(known.begin(), known.end(), text) != known.end()) continue;
    question.answers.push_back(std::move(text));
  }
  return question;
}

void read_article(const JsonPlace& article, size_t index, TaskData& data) {
  const auto title = article.find("title");
  const bool titled = title && title->value().is_string();
  const std::vector<JsonPlace> paragraphs = article.at("paragraphs").items();
  for (size_t number = 0; number < paragraphs.size(); ++number) {
    EvalContext context{.id = fmt::format("{}.{}", index, number),
                        .group = titled ? title->text() : fmt::format("{}", index),
                        .text = paragraphs[number].at("context").text(),
                        .questions = {}};
    for (const JsonPlace& place : paragraphs[number].at("qas").items()) {
      EvalQuestion question = read_question(place);
      if (question.answers.empty()) {
        ++data.n_skipped;
      } else {
        context.questions.push_back(std::move(question));
      }
    }
    if (!context.questions.empty()) data.contexts.push_back(std::move(context));
  }
}

}  // namespace

TaskData read_squad(const std::string& path) {
  TaskData data;
  read_json(path, kFormat, [&](const JsonPlace& top) {
    const std::vector<JsonPlace> articles = top.at("data").items();
    for (size_t index = 0; index < articles.size(); ++index)
      read_article(articles[index], index, data);
  });
  if (data.contexts.empty()) {
    fail(ErrorKind::kCorruptFile, "{}: has no question with an answer", path);
  }
  return data;
}

Task squad_task() {
  return {.name = "squad",
          .group = "understanding",
          .summary = "Questions about paragraphs, several to each (SQuAD, XQuAD)",
          .data_format = kFormat,
          .instruction = "Answer briefly with a phrase from the text.",
          .max_tokens = 32,
          .load = [](const DataRequest& request) { return read_squad(request.path); },
          .metrics = kMetrics};
}

}  // namespace ctxzip::eval
