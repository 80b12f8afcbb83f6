// SQuAD 1.1 and 2.0, and what shares their format (XQuAD, MLQA, ...):
// {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question", "answers":
// [{"text"}]}]}]}]}
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/fail.h"
#include "core/file.h"
#include "eval/metrics.h"
#include "eval/task.h"

namespace ctxzip::eval {
namespace {

using Json = nlohmann::json;

constexpr std::array kMetrics{
    Metric{"substring", substring_match},
    Metric{"f1", token_f1},
    Metric{"exact", exact_match},
};

// One value of the file and where it is: "data[3].paragraphs[0]".
struct Place {
  const Json& value;
  std::string path;
  const std::string& file;

  [[noreturn]] void refuse(const std::string& expected) const {
    fail(ErrorKind::kCorruptFile, "{}: {} is {}, expected {} (SQuAD JSON, version 1.1 or 2.0)",
         file, path.empty() ? "the top level" : path, value.type_name(), expected);
  }
  Place at(const char* key) const {
    if (!value.is_object()) refuse("an object");
    const auto found = value.find(key);
    if (found == value.end()) {
      fail(ErrorKind::kCorruptFile, "{}: {} has no \"{}\" (SQuAD JSON, version 1.1 or 2.0)", file,
           path.empty() ? "the top level" : path, key);
    }
    return {*found, path.empty() ? key : path + "." + key, file};
  }
  std::vector<Place> items() const {
    if (!value.is_array()) refuse("an array");
    std::vector<Place> places;
    for (size_t index = 0; index < value.size(); ++index) {
      places.push_back({value[index], fmt::format("{}[{}]", path, index), file});
    }
    return places;
  }
  std::string text() const {
    if (!value.is_string()) refuse("a string");
    return value.get<std::string>();
  }
};

EvalQuestion read_question(const Place& place) {
  EvalQuestion question{
      .id = place.at("id").text(), .text = place.at("question").text(), .answers = {}};
  for (const Place& answer : place.at("answers").items()) {
    std::string text = answer.at("text").text();
    // Annotators often agree; an empty string would match anything.
    const auto& known = question.answers;
    if (text.empty() || std::find(known.begin(), known.end(), text) != known.end()) continue;
    question.answers.push_back(std::move(text));
  }
  return question;
}

void read_article(const Place& article, size_t index, TaskData& data) {
  const auto title = article.value.is_object() ? article.value.find("title") : article.value.end();
  const bool titled = title != article.value.end() && title->is_string();
  const std::vector<Place> paragraphs = article.at("paragraphs").items();
  for (size_t number = 0; number < paragraphs.size(); ++number) {
    EvalContext context{.id = fmt::format("{}.{}", index, number),
                        .group = titled ? title->get<std::string>() : fmt::format("{}", index),
                        .text = paragraphs[number].at("context").text(),
                        .questions = {}};
    for (const Place& place : paragraphs[number].at("qas").items()) {
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

TaskData load(const std::string& path) {
  const MappedFile file(path);
  const std::string_view bytes(reinterpret_cast<const char*>(file.bytes().data()),
                               file.bytes().size());
  Json json;
  try {
    json = Json::parse(bytes);
  } catch (const Json::parse_error& error) {
    fail(ErrorKind::kCorruptFile, "{}: is not JSON: error at byte {}", path, error.byte);
  }
  TaskData data;
  const std::vector<Place> articles = Place{json, "", path}.at("data").items();
  for (size_t index = 0; index < articles.size(); ++index)
    read_article(articles[index], index, data);
  if (data.contexts.empty()) {
    fail(ErrorKind::kCorruptFile, "{}: has no question with an answer", path);
  }
  return data;
}

}  // namespace

Task squad_task() {
  return {.name = "squad",
          .summary = "Questions about paragraphs, several to each (SQuAD, XQuAD)",
          .data_format = "SQuAD JSON, version 1.1 or 2.0",
          .instruction = "Answer briefly with a phrase from the text.",
          .load = load,
          .metrics = kMetrics};
}

}  // namespace ctxzip::eval
