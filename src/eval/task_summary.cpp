// En.Sum of SCBench, summaries of parts of a long text, and its mixture with needles.
#include <fmt/format.h>

#include <array>

#include "eval/generator.h"
#include "eval/metrics.h"
#include "eval/report_text.h"
#include "eval/scbench.h"
#include "eval/task_list.h"
#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

double mixed_score(std::string_view output, const EvalQuestion& question) {
  return question.part == "summary" ? rouge_l(output, question.answers)
                                    : substring_match(output, question.answers);
}

constexpr std::array kMetrics{Metric{"rouge_l", of_answers<rouge_l>}};
constexpr std::array kMixedMetrics{Metric{"mixed", mixed_score}};
constexpr std::array<int64_t, 1> kLengths{2000};
constexpr int64_t kContexts = 10;  // of each length
constexpr size_t kSummaries = 3;   // asked of each context
constexpr size_t kNeedles = 3;     // of the mixture
constexpr int64_t kSummaryTokens = 200;
constexpr int64_t kNeedleTokens = 16;

struct Needle {
  std::string name;
  std::string code;
};

// The first n reports; needles stand in the middle of reports at even distances.
std::string join(const std::vector<MadeUpReport>& reports, size_t n,
                 const std::vector<Needle>& needles) {
  std::string text;
  for (size_t at = 0; at < n; ++at) {
    text += fmt::format("{}Report {}: {}\n\n", at == 0 ? "" : "\n\n", at + 1, reports[at].title);
    const std::vector<std::string>& sentences = reports[at].sentences;
    for (size_t sentence = 0; sentence < sentences.size(); ++sentence) {
      text += (sentence == 0 ? "" : " ") + sentences[sentence];
      if (sentence != sentences.size() / 2) continue;
      for (size_t needle = 0; needle < needles.size(); ++needle) {
        if (needle * n / needles.size() != at) continue;
        text += fmt::format(" The access code of the {} is {}.", needles[needle].name,
                            needles[needle].code);
      }
    }
  }
  return text;
}

void ask(const std::vector<MadeUpReport>& reports, const std::vector<Needle>& needles, Draw& draw,
         EvalContext& context) {
  std::vector<size_t> order;
  for (size_t at = 0; at < reports.size(); ++at) order.push_back(at);
  draw.shuffle(order);
  for (size_t at = 0; at < std::min(kSummaries, order.size()); ++at) {
    context.questions.push_back(
        {.id = fmt::format("report{}", order[at] + 1),
         .text =
             fmt::format("Summarise report {} in one sentence: who was asked to do what and "
                         "where, how long it took, what it cost, the main difficulty and the end.",
                         order[at] + 1),
         .answers = {reports[order[at]].summary},
         .part = needles.empty() ? "" : "summary"});
  }
  for (size_t at = 0; at < needles.size(); ++at) {
    context.questions.push_back(
        {.id = fmt::format("needle{}", at),
         .text = fmt::format("What is the access code of the {}? Answer with the code only.",
                             needles[at].name),
         .answers = {needles[at].code},
         .part = "needle",
         .max_tokens = kNeedleTokens});
  }
}

TaskData make(const DataRequest& request, const char* task, size_t n_needles) {
  const Filler filler(request.filler);
  const GeneratorPlan plan{task, kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    std::vector<Needle> needles;
    for (const std::string& name : distinct(n_needles, draw, word_pair)) {
      needles.push_back({name, seven_digits(draw)});
    }
    std::vector<MadeUpReport> reports;
    FittedText fitted = longest_text(place.length, 1, request.count_tokens, [&](size_t n) {
      while (reports.size() < n) reports.push_back(make_up_report(filler, draw));
      return join(reports, n, needles);
    });
    reports.resize(fitted.n_items);
    EvalContext context;
    context.text = std::move(fitted.text);
    ask(reports, needles, draw, context);
    return context;
  });
}

// Turns of the mixture carry the task they come from.
void read_mixed_turn(const JsonPlace& turn, EvalQuestion& question) {
  read_plain_turn(turn, question);
  question.part = turn.at("task").text() == "scbench_passkey" ? "needle" : "summary";
  question.max_tokens = question.part == "needle" ? kNeedleTokens : 800;
}

Task summary_task(const char* name, size_t n_needles, const ScbenchReader& reader) {
  Task task;
  task.name = name;
  task.need = DataNeed::kFileOrGenerated;
  task.data_format = kScbenchFormat;
  task.instruction = "";
  task.max_tokens = kSummaryTokens;
  task.lengths = kLengths;
  task.takes_filler = true;
  task.load = [=](const DataRequest& request) {
    return request.path.empty() ? make(request, name, n_needles) : read_scbench(request, reader);
  };
  return task;
}

}  // namespace

Task en_sum_task() {
  Task task = summary_task("en-sum", 0, {});
  task.group = "redundancy";
  task.summary = "Summaries of parts of a long text (En.Sum)";
  task.metrics = kMetrics;
  return task;
}

Task mix_sum_niah_task() {
  Task task = summary_task("mix-sum-niah", kNeedles, {.read_turn = read_mixed_turn});
  task.group = "mixed";
  task.summary = "Summaries and needles in one context (Mix.Sum+NIAH)";
  task.metrics = kMixedMetrics;
  return task;
}

}  // namespace ctxzip::eval
