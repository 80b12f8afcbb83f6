// Retr.KV and Retr.Prefix-Suffix of SCBench: one entry out of a long list of random ones.
#include <fmt/format.h>

#include <array>

#include "eval/generator.h"
#include "eval/metrics.h"
#include "eval/scbench.h"
#include "eval/task_list.h"
#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

constexpr std::array kMetrics{Metric{"substring", of_answers<substring_match>}};
constexpr std::array<int64_t, 1> kLengths{2000};
constexpr int64_t kContexts = 10;  // of each length
constexpr size_t kQuestions = 5;   // to each context

constexpr const char* kKvPreamble =
    "Below is a JSON object with many keys. You will be asked for the values of some of them.\n\n";

struct Entry {
  std::string key;
  std::string value;
};

// One kind of list.
struct LookupList {
  const char* task;
  const char* preamble;
  Entry (*make)(Draw& draw);
  std::string (*line)(const Entry& entry, bool first);
  const char* end;
  std::string (*question)(const Entry& entry);
};

std::string build(const LookupList& list, const std::vector<Entry>& entries, size_t n) {
  std::string text = list.preamble;
  for (size_t at = 0; at < n; ++at) text += list.line(entries[at], at == 0);
  return text + list.end;
}

TaskData make(const DataRequest& request, const LookupList& list) {
  const GeneratorPlan plan{list.task, kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    std::vector<Entry> entries;
    const auto grow = [&](size_t n) {
      while (entries.size() < n) entries.push_back(list.make(draw));
      return build(list, entries, n);
    };
    FittedText fitted = longest_text(place.length, kQuestions, request.count_tokens, grow);
    EvalContext context;
    context.text = std::move(fitted.text);
    entries.resize(fitted.n_items);
    draw.shuffle(entries);
    for (size_t at = 0; at < kQuestions; ++at) {
      context.questions.push_back({.id = std::to_string(at),
                                   .text = list.question(entries[at]),
                                   .answers = {entries[at].value}});
    }
    return context;
  });
}

LookupList kv_list() {
  return {.task = "retr-kv",
          .preamble = kKvPreamble,
          .make =
              [](Draw& draw) {
                std::string key = uuid(draw);
                return Entry{std::move(key), uuid(draw)};
              },
          .line =
              [](const Entry& entry, bool first) {
                return fmt::format("{}\"{}\": \"{}\"", first ? "{" : ",\n", entry.key, entry.value);
              },
          .end = "}",
          .question =
              [](const Entry& entry) {
                return fmt::format("What is the value of the key \"{}\"?", entry.key);
              }};
}

Entry random_string(Draw& draw) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  std::string text;
  for (int64_t n = draw.between(18, 24); n > 0; --n) text += draw.one_of(kLetters);
  return {text, text};
}

LookupList string_list() {
  return {.task = "retr-prefix-suffix",
          .preamble = "Below is a list of strings, one a line.\n",
          .make = random_string,
          .line = [](const Entry& entry, bool) { return "\n" + entry.value; },
          .end = "",
          .question =
              [](const Entry& entry) {
                constexpr size_t kShown = 6;
                return fmt::format(
                    "Which string of the list starts with \"{}\" and ends with \"{}\"?",
                    entry.value.substr(0, kShown), entry.value.substr(entry.value.size() - kShown));
              }};
}

}  // namespace

Task retr_kv_task() {
  return {.name = "retr-kv",
          .group = "retrieval",
          .summary = "The value of a key in a long JSON object (Retr.KV)",
          .need = DataNeed::kFileOrGenerated,
          .data_format = kScbenchFormat,
          .instruction = "Answer with the value only.",
          .max_tokens = 150,
          .lengths = kLengths,
          .load =
              [](const DataRequest& request) {
                if (request.path.empty()) return make(request, kv_list());
                return read_scbench(request, {.preamble = kKvPreamble});
              },
          .metrics = kMetrics};
}

Task retr_prefix_suffix_task() {
  return {.name = "retr-prefix-suffix",
          .group = "retrieval",
          .summary = "The string with a given start and end in a long list (Retr.Prefix-Suffix)",
          .need = DataNeed::kFileOrGenerated,
          .data_format = kScbenchFormat,
          .instruction = "Answer with the string only.",
          .max_tokens = 150,
          .lengths = kLengths,
          .load =
              [](const DataRequest& request) {
                if (request.path.empty()) return make(request, string_list());
                return read_scbench(request, {});
              },
          .metrics = kMetrics};
}

}  // namespace ctxzip::eval
