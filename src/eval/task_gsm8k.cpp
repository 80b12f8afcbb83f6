// GSM8K as KVzip asks it: the story is the context, its last sentence the question.
#include <array>

#include "core/fail.h"
#include "eval/json_place.h"
#include "eval/metrics.h"
#include "eval/task_list.h"

namespace ctxzip::eval {
namespace {

constexpr const char* kFormat = "GSM8K JSONL: {\"question\", \"answer\"} on each line";
constexpr int64_t kShortestContext = 72;  // tokens; shorter stories have little to evict

constexpr std::array kMetrics{Metric{"last_number", of_answers<last_number_match>}};

struct Problem {
  std::string story;
  std::string question;
};

// Splits before the last sentence: after the last full stop that a blank follows.
Problem split(const std::string& text) {
  const size_t end = text.find_last_not_of(" \n\r\t");
  const size_t stop = text.rfind(". ", end == std::string::npos ? 0 : end);
  if (stop == std::string::npos) return {"", text};
  const size_t start = text.find_first_not_of(" \n\r\t", stop + 1);
  return {text.substr(0, stop + 1), text.substr(start, end + 1 - start)};
}

TaskData load(const DataRequest& request) {
  TaskData data;
  int64_t number = 0;
  read_json_lines(request.path, kFormat, [&](const JsonPlace& row) {
    const std::string id = std::to_string(number++);
    const Problem problem = split(row.at("question").text());
    const JsonPlace answer = row.at("answer");
    const std::string text = answer.text();
    constexpr std::string_view kMark = "#### ";
    const size_t mark = text.rfind(kMark);
    if (mark == std::string::npos) answer.refuse("an answer with \"#### \" before its result");
    if (request.count_tokens(problem.story) < kShortestContext) return;
    data.contexts.push_back({.id = id,
                             .group = id,
                             .text = problem.story,
                             .questions = {{.id = "0",
                                            .text = problem.question,
                                            .answers = {text.substr(mark + kMark.size())}}}});
  });
  if (data.contexts.empty()) {
    fail(ErrorKind::kCorruptFile, "{}: has no story of {} tokens or more", request.path,
         kShortestContext);
  }
  return data;
}

}  // namespace

Task gsm8k_task() {
  return {.name = "gsm8k",
          .group = "understanding",
          .summary = "Grade-school maths: the story is the context, its last sentence the question",
          .data_format = kFormat,
          .instruction = "Think step by step and end with the result as a number.",
          .max_tokens = 256,
          .load = load,
          .metrics = kMetrics};
}

}  // namespace ctxzip::eval
