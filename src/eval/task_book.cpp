// En.QA and En.MultiChoice of SCBench: questions about a book.
#include <array>

#include "eval/metrics.h"
#include "eval/scbench.h"
#include "eval/task_list.h"

namespace ctxzip::eval {
namespace {

constexpr const char* kPreamble = "Read the book. You will be asked about it.\n\n";

constexpr std::array kQaMetrics{
    Metric{"f1_or_substring", of_answers<f1_or_substring>},
    Metric{"f1", of_answers<token_f1>},
    Metric{"substring", of_answers<substring_match>},
};
constexpr std::array kChoiceMetrics{Metric{"accuracy", of_answers<choice_match>}};

void read_choice(const JsonPlace& turn, EvalQuestion& question) {
  std::vector<std::string> options;
  for (const JsonPlace& option : turn.at("options").items()) options.push_back(option.text());
  question.text = with_options(turn.at("input").text(), options);
  const JsonPlace answer = turn.at("answer");
  const std::vector<std::string> answers = answer.texts();
  for (size_t at = 0; at < options.size() && !answers.empty(); ++at) {
    const std::string letter(1, static_cast<char>('A' + at));
    if (answers[0] == letter || answers[0] == options[at]) question.answers = {letter, options[at]};
  }
  if (question.answers.empty()) answer.refuse("the letter or the text of an option");
}

}  // namespace

Task en_qa_task() {
  return {
      .name = "en-qa",
      .group = "understanding",
      .summary = "Questions about a book (En.QA)",
      .data_format = kScbenchFormat,
      .instruction = "Answer as briefly as possible.",
      .max_tokens = 40,
      .load =
          [](const DataRequest& request) { return read_scbench(request, {.preamble = kPreamble}); },
      .metrics = kQaMetrics};
}

Task en_multichoice_task() {
  return {.name = "en-multichoice",
          .group = "understanding",
          .summary = "Questions about a book with four options (En.MultiChoice)",
          .data_format =
              "SCBench JSONL: {\"context\", \"multi_turns\": [{\"input\", \"options\", "
              "\"answer\"}]} on each line",
          .instruction = "Answer with the letter of the right option only.",
          .max_tokens = 40,
          .load =
              [](const DataRequest& request) {
                return read_scbench(request, {.preamble = kPreamble, .read_turn = read_choice});
              },
          .metrics = kChoiceMetrics};
}

}  // namespace ctxzip::eval
