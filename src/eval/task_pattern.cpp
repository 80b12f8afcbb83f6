// Tasks of SCBench whose contexts repeat themselves: Retr.MultiHop, Math.Find, ICL.ManyShot.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "eval/generator.h"
#include "eval/metrics.h"
#include "eval/scbench.h"
#include "eval/task_list.h"
#include "eval/variable_chains.h"
#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

constexpr std::array kHopMetrics{Metric{"contains_all", of_answers<contains_all>}};
constexpr std::array kNumberMetrics{Metric{"first_number", of_answers<first_number_match>}};
constexpr std::array kChoiceMetrics{Metric{"accuracy", of_answers<choice_match>}};
constexpr std::array<int64_t, 1> kLengths{2000};
constexpr int64_t kContexts = 10;  // of each length
constexpr size_t kQuestions = 5;   // to each context

TaskData make_multihop(const DataRequest& request) {
  const Filler filler(request.filler);
  const GeneratorPlan plan{"retr-multihop", kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    constexpr size_t kHops = 2;
    const std::vector<VariableChain> chains = draw_chains(kQuestions, kHops, draw);
    EvalContext context;
    context.text =
        haystack(place.length, request.count_tokens, filler, draw, place_chains(chains, draw));
    for (const VariableChain& chain : chains) {
      context.questions.push_back({.id = std::to_string(context.questions.size()),
                                   .text = chain_question(chain),
                                   .answers = chain.names});
    }
    return context;
  });
}

// What is asked of a list of numbers, and its place in the ascending order.
struct Rank {
  const char* name;
  size_t (*place)(size_t n);
};
constexpr Rank kRanks[kQuestions] = {
    {"largest", [](size_t n) { return n - 1; }},
    {"second largest", [](size_t n) { return n - 2; }},
    {"third largest", [](size_t n) { return n - 3; }},
    {"smallest", [](size_t) { return size_t{0}; }},
    {"second smallest", [](size_t) { return size_t{1}; }},
};

TaskData make_math_find(const DataRequest& request) {
  const GeneratorPlan plan{"math-find", kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    std::vector<int64_t> numbers;
    const auto build = [&](size_t n) {
      // Repetitions make the list compressible, as in SCBench; no ranks are tied at its ends.
      while (numbers.size() < n) numbers.push_back(draw.between(10, 99));
      std::string text = "Below is a list of numbers.\n\n";
      for (size_t at = 0; at < n; ++at)
        text += fmt::format("{}{}", at == 0 ? "" : ", ", numbers[at]);
      return text;
    };
    // The extremes stand somewhere in the list, each once.
    numbers = {draw.between(960, 999), draw.between(930, 959), draw.between(900, 929), 1, 5};
    for (int n = 0; n < 15; ++n) numbers.push_back(draw.between(10, 99));
    FittedText fitted = longest_text(place.length, numbers.size(), request.count_tokens, build);
    numbers.resize(fitted.n_items);
    draw.shuffle(numbers);
    EvalContext context;
    context.text = build(numbers.size());
    std::vector<int64_t> sorted = numbers;
    std::sort(sorted.begin(), sorted.end());
    for (const Rank& rank : kRanks) {
      context.questions.push_back(
          {.id = rank.name,
           .text = fmt::format("What is the {} number of the list?", rank.name),
           .answers = {std::to_string(sorted[rank.place(sorted.size())])}});
    }
    return context;
  });
}

// A rule that only the examples tell: each kind of thing has a made-up label.
struct Kind {
  const char* name;
  std::array<const char*, 10> members;
};
constexpr Kind kKinds[] = {
    {"tools",
     {"hammer", "saw", "chisel", "wrench", "drill", "pliers", "file", "axe", "trowel", "spade"}},
    {"animals",
     {"otter", "heron", "badger", "lynx", "toad", "salmon", "beetle", "hare", "owl", "goat"}},
    {"food",
     {"bread", "cheese", "soup", "plum", "rice", "honey", "bean", "onion", "pastry", "olive"}},
    {"vehicles",
     {"tram", "canoe", "bicycle", "lorry", "glider", "barge", "taxi", "scooter", "bus", "sledge"}}};

TaskData make_manyshot(const DataRequest& request) {
  const GeneratorPlan plan{"icl-manyshot", kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    const std::vector<std::string> labels = distinct(std::size(kKinds), draw, coined_word);
    // The last words of each kind are kept for the questions.
    constexpr size_t kShown = 7;
    const auto item = [&](size_t kind, size_t member) {
      const std::string adjective = draw.one_of(adjectives());
      return fmt::format("a {} {}", adjective, kKinds[kind].members[member]);
    };
    std::vector<std::string> shots;
    const auto build = [&](size_t n) {
      while (shots.size() < n) {
        const size_t kind = draw.below(std::size(kKinds));
        shots.push_back(
            fmt::format("Item: {}\nLabel: {}", item(kind, draw.below(kShown)), labels[kind]));
      }
      std::string text = "Below are items and their labels.";
      for (size_t at = 0; at < n; ++at) text += "\n\n" + shots[at];
      return text;
    };
    EvalContext context;
    context.text = longest_text(place.length, 12, request.count_tokens, build).text;
    for (size_t number = 0; number < kQuestions; ++number) {
      const size_t kind = draw.below(std::size(kKinds));
      const size_t member = kShown + draw.below(kKinds[kind].members.size() - kShown);
      context.questions.push_back(
          {.id = std::to_string(number),
           .text = with_options(
               fmt::format("Which label belongs to the item \"{}\"?", item(kind, member)), labels),
           .answers = {std::string(1, static_cast<char>('A' + kind)), labels[kind]}});
    }
    return context;
  });
}

// "The largest number is" of Math.Find asks for more than a model without examples understands.
void read_math_turn(const JsonPlace& turn, EvalQuestion& question) {
  read_plain_turn(turn, question);
  constexpr std::string_view kStart = "The ";
  constexpr std::string_view kEnd = " is";
  const std::string input = question.text;
  const size_t start = input.rfind(kStart);
  const size_t end = start == std::string::npos ? start : input.find(kEnd, start);
  if (end == std::string::npos) return;
  question.text = fmt::format("What is the {}?",
                              input.substr(start + kStart.size(), end - start - kStart.size()));
}

// Many-shot inputs hold their options as "(A) ..." lines; the answer is a letter.
void read_shot_turn(const JsonPlace& turn, EvalQuestion& question) {
  read_plain_turn(turn, question);
  if (question.answers.empty()) return;
  std::string& letter = question.answers[0];
  if (letter.size() == 3 && letter[0] == '(' && letter[2] == ')') letter = letter.substr(1, 1);
  const std::string mark = "(" + letter + ")";
  const size_t at = question.text.find(mark);
  if (at == std::string::npos) turn.at("answer").refuse("the letter of an option in the input");
  const size_t start = std::min(at + mark.size() + 1, question.text.size());
  question.answers = {letter, question.text.substr(start, question.text.find('\n', start) - start)};
}

}  // namespace

Task retr_multihop_task() {
  return {.name = "retr-multihop",
          .group = "redundancy",
          .summary = "All variables of a chain of assignments (Retr.MultiHop)",
          .need = DataNeed::kFileOrGenerated,
          .data_format = kScbenchFormat,
          .instruction = "Answer with the names only.",
          .max_tokens = 48,
          .lengths = kLengths,
          .takes_filler = true,
          .load =
              [](const DataRequest& request) {
                if (request.path.empty()) return make_multihop(request);
                return read_scbench(request, {});
              },
          .metrics = kHopMetrics};
}

Task math_find_task() {
  return {.name = "math-find",
          .group = "redundancy",
          .summary = "The largest, smallest, ... number of a long list (Math.Find)",
          .need = DataNeed::kFileOrGenerated,
          .data_format = kScbenchFormat,
          .instruction = "Answer with the number only.",
          .max_tokens = 16,
          .lengths = kLengths,
          .load =
              [](const DataRequest& request) {
                if (request.path.empty()) return make_math_find(request);
                return read_scbench(request, {.read_turn = read_math_turn});
              },
          .metrics = kNumberMetrics};
}

Task icl_manyshot_task() {
  return {.name = "icl-manyshot",
          .group = "redundancy",
          .summary = "A rule learned from many examples, with options (ICL.ManyShot)",
          .need = DataNeed::kFileOrGenerated,
          .data_format = kScbenchFormat,
          .instruction = "Answer with the letter of the right option only.",
          .max_tokens = 16,
          .lengths = kLengths,
          .load =
              [](const DataRequest& request) {
                if (request.path.empty()) return make_manyshot(request);
                return read_scbench(request, {.read_turn = read_shot_turn});
              },
          .metrics = kChoiceMetrics};
}

}  // namespace ctxzip::eval
