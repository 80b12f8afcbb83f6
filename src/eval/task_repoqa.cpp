// RepoQA (Liu et al. 2024): find the function that a description fits, in a context of code. And
// SCBench's mixture of it with Retr.KV.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "eval/generator.h"
#include "eval/metrics.h"
#include "eval/scbench.h"
#include "eval/source_code.h"
#include "eval/task_list.h"
#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

double mixed_score(std::string_view output, const EvalQuestion& question) {
  return question.part == "code" ? code_pass(output, question)
                                 : substring_match(output, question.answers);
}

constexpr std::array kMetrics{Metric{"pass", code_pass},
                              Metric{"similarity", of_answers<code_similarity>}};
constexpr std::array kMixedMetrics{Metric{"mixed", mixed_score}};
constexpr std::array<int64_t, 1> kLengths{4000};
constexpr int64_t kContexts = 10;       // of each length
constexpr size_t kQuestions = 5;        // to each context
constexpr size_t kQuestionsOfPart = 3;  // of each part of the mixture
constexpr size_t kPairs = 20;           // keys and values among the code
constexpr int64_t kMaxTokens = 1024;

constexpr const char* kCodeFormat =
    "a folder of source files (C, C++, C#, Go, Java, JavaScript, Kotlin, Python, Rust, Swift, "
    "TypeScript), or SCBench JSONL";

constexpr const char* kPreamble =
    "Below is code. You will be asked to repeat functions of it that fit a description.\n\n";

struct Pair {
  std::string key;
  std::string value;
};

// Pieces of all files, starting with a random file; each file's first piece tells its name.
std::vector<SourcePiece> joined_pieces(const std::vector<SourceFile>& files, Draw& draw) {
  std::vector<SourcePiece> pieces;
  const size_t start = draw.below(files.size());
  for (size_t at = 0; at < files.size(); ++at) {
    const SourceFile& file = files[(start + at) % files.size()];
    pieces.push_back({.text = fmt::format("{}File: {}\n", at == 0 ? "" : "\n\n", file.name)});
    pieces.insert(pieces.end(), file.pieces.begin(), file.pieces.end());
  }
  return pieces;
}

// The first n pieces, with pairs in lines of their own at even distances between them.
std::string join(const std::vector<SourcePiece>& pieces, size_t n, const std::vector<Pair>& pairs) {
  std::string text;
  size_t next = 0;
  for (size_t at = 0; at < n; ++at) {
    text += pieces[at].text;
    for (; next < pairs.size() && next * n < (at + 1) * pairs.size(); ++next) {
      if (!text.ends_with('\n')) text += '\n';
      text += fmt::format("\"{}\": \"{}\"\n", pairs[next].key, pairs[next].value);
    }
  }
  return text;
}

void ask_for_functions(std::vector<SourceFunction> functions, size_t n_questions,
                       const std::string& part, const DataRequest& request, EvalContext& context) {
  for (size_t at = 0; at < std::min(n_questions, functions.size()); ++at) {
    const SourceFunction& asked = functions[at];
    EvalQuestion question{
        .id = fmt::format("{}.{}", at, asked.name),
        .text = fmt::format("Which function of the code fits this description? Repeat it exactly "
                            "and in full in a code block.\nDescription: {}",
                            asked.description),
        .answers = {asked.code},
        .part = part};
    // Whatever is twice as long is no repetition; the rest only costs time.
    question.max_tokens = std::min(kMaxTokens, 2 * request.count_tokens(asked.code) + 64);
    for (const SourceFunction& other : functions) {
      if (other.code != asked.code) question.others.push_back(other.code);
    }
    context.questions.push_back(std::move(question));
  }
}

void ask_for_values(const std::vector<Pair>& pairs, EvalContext& context) {
  for (size_t at = 0; at < std::min(kQuestionsOfPart, pairs.size()); ++at) {
    context.questions.push_back(
        {.id = fmt::format("kv{}", at),
         .text = fmt::format("Among the code are lines with keys and values. What is the value of "
                             "the key \"{}\"? Answer with the value only.",
                             pairs[at].key),
         .answers = {pairs[at].value},
         .part = "kv",
         .max_tokens = 150});
  }
}

TaskData make(const DataRequest& request, const char* task, size_t n_functions, size_t n_pairs) {
  const std::vector<SourceFile> files = read_source_folder(request.path);
  const GeneratorPlan plan{task, kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    const std::vector<SourcePiece> pieces = joined_pieces(files, draw);
    std::vector<Pair> pairs;
    for (const std::string& key : distinct(n_pairs, draw, uuid)) pairs.push_back({key, uuid(draw)});
    const auto first = std::find_if(pieces.begin(), pieces.end(), [](const SourcePiece& piece) {
      return piece.function.has_value();
    });
    const FittedText fitted = longest_text(
        place.length, static_cast<size_t>(first - pieces.begin()) + 1, request.count_tokens,
        [&](size_t n) { return join(pieces, n, pairs); }, pieces.size());
    EvalContext context;
    context.text = fitted.text;
    std::vector<SourceFunction> functions;
    for (size_t at = 0; at < fitted.n_items; ++at) {
      if (pieces[at].function) functions.push_back(*pieces[at].function);
    }
    draw.shuffle(functions);
    ask_for_functions(std::move(functions), n_functions, pairs.empty() ? "" : "code", request,
                      context);
    draw.shuffle(pairs);
    ask_for_values(pairs, context);
    return context;
  });
}

// The other functions that are asked for in the same repository, in whatever row of the file.
void add_candidates(TaskData& data) {
  std::map<std::string, std::vector<std::string>> of_repository;
  const auto for_each_function = [&](const auto& use) {
    for (EvalContext& context : data.contexts) {
      for (EvalQuestion& question : context.questions) {
        if (question.part != "kv") use(of_repository[context.group], question);
      }
    }
  };
  for_each_function([](std::vector<std::string>& functions, const EvalQuestion& question) {
    functions.push_back(question.answers[0]);
  });
  for_each_function([](const std::vector<std::string>& functions, EvalQuestion& question) {
    for (const std::string& function : functions) {
      if (function != question.answers[0]) question.others.push_back(function);
    }
  });
}

TaskData load(const DataRequest& request) {
  if (std::filesystem::is_directory(request.path)) return make(request, "repoqa", kQuestions, 0);
  TaskData data = read_scbench(request, {.preamble = kPreamble});
  add_candidates(data);
  return data;
}

// Turns of the mixture carry the task they come from.
void read_mixed_turn(const JsonPlace& turn, EvalQuestion& question) {
  read_plain_turn(turn, question);
  question.part = turn.at("task").text() == "scbench_kv" ? "kv" : "code";
  if (question.part == "kv") question.max_tokens = 80;
}

TaskData load_mixed(const DataRequest& request) {
  if (std::filesystem::is_directory(request.path)) {
    return make(request, "mix-repoqa-kv", kQuestionsOfPart, kPairs);
  }
  TaskData data = read_scbench(request, {.read_turn = read_mixed_turn});
  add_candidates(data);
  return data;
}

}  // namespace

Task repoqa_task() {
  return {.name = "repoqa",
          .group = "retrieval",
          .summary = "The function that a description fits (Code.RepoQA)",
          .need = DataNeed::kFileOrFolder,
          .data_format = kCodeFormat,
          .instruction = "",
          .max_tokens = kMaxTokens,
          .lengths = kLengths,
          .load = load,
          .metrics = kMetrics};
}

Task mix_repoqa_kv_task() {
  return {.name = "mix-repoqa-kv",
          .group = "mixed",
          .summary = "Functions and keys in one context (Mix.RepoQA+KV)",
          .need = DataNeed::kFileOrFolder,
          .data_format = kCodeFormat,
          .instruction = "",
          .max_tokens = kMaxTokens,
          .lengths = kLengths,
          .load = load_mixed,
          .metrics = kMixedMetrics};
}

}  // namespace ctxzip::eval
