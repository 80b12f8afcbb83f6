#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "cli/answer_output.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/model_locator.h"
#include "cli/ordered_answers.h"
#include "cli/progress_bar.h"
#include "cli/recall_flags.h"
#include "cli/recall_output.h"
#include "cli/standard_output.h"
#include "cli/terminal.h"

namespace ctxzip::cli {
namespace {

struct AskFlags {
  std::string file;
  std::vector<std::string> questions;
  OutputOptions output;
  ModelFlags model;
  AskOptions ask;
  int64_t at_once = 4;
  RecallFlags recall;
};

// "-" stands for the lines of standard input.
std::vector<std::string> all_questions(const std::vector<std::string>& given) {
  std::vector<std::string> questions;
  bool stdin_read = false;
  for (const std::string& question : given) {
    if (question.find_first_not_of(" \t\r\n") == std::string::npos) {
      throw CLI::ValidationError("QUESTION", "a question is empty");
    }
    if (question != "-") {
      questions.push_back(question);
      continue;
    }
    if (stdin_read) throw CLI::ValidationError("QUESTION", "'-' may be given once");
    stdin_read = true;
    for (std::string& line : read_question_lines()) questions.push_back(std::move(line));
  }
  if (questions.empty()) throw CLI::ValidationError("QUESTION", "standard input holds none");
  return questions;
}

int run(AskFlags& flags) {
  const std::vector<std::string> questions = all_questions(flags.questions);
  ProgressBar bar;
  bar.status("loading the model");
  Context context = open_context(flags.file, flags.model.model, flags.model.load);
  if (!flags.recall.changes.empty()) {
    context = with_stream_options(context, flags.recall.apply(stream_options(context)));
  }
  bar.clear();
  AnswerOutput output(flags.output.json, questions.size() > 1);
  OrderedAnswers answers(output, questions);
  const InterruptScope interrupt;
  flags.ask.cancel = interrupt.token();
  std::vector<Question> asked;
  for (size_t number = 0; number < questions.size(); ++number) {
    asked.push_back({questions[number], flags.ask});
    asked.back().options.on_text = answers.streaming(number);
  }
  const auto add = [&](size_t number, const AskResult& result) { answers.add(number, result); };
  std::optional<Session> stream;  // its memory is reported below
  if (is_stream(context)) {
    stream.emplace(context);
    ask_in_turn(*stream, asked, add);
  } else {
    ask_together(context, asked, flags.at_once, add);
  }
  if (flags.output.json) {
    Json json = {{"file", flags.file}, {"answers", output.answers()}};
    if (stream) json["recall"] = recall_json(*stream->recall_report());
    print_json(json);
  } else if (stream && stream_options(context).audit_steps > 0) {
    fmt::print(stderr, "\n{}", recall_lines(*stream->recall_report()));
  }
  return interrupt.token()->cancelled() ? interrupted_exit_code() : output.exit_code();
}

}  // namespace

Run add_ask(CLI::App& app) {
  auto flags = std::make_shared<AskFlags>();
  add_ctz_file(app, flags->file)->required();
  add_texts(app, "QUESTION", flags->questions,
            "Questions, each answered by itself; - reads one a line from standard input")
      ->required();
  add_model_options(app, flags->model, "the one that the file was made with");
  add_answer_options(app, flags->ask);
  add_integer(
      app, "--at-once", {.min = 1, .max = kMostAtOnce},
      [flags = flags.get()](int64_t n) { flags->at_once = n; },
      fmt::format("Questions that are answered side by side (default: {})", flags->at_once));
  add_recall_flags(app, flags->recall, RecallUse::kStoredText);
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip ask manual.ctz \"How is it started?\" \"How is it stopped?\"\n"
      "  ctxzip ask manual.ctz - --json --max-tokens 64 < questions.txt");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
