// RULER (Hsieh et al. 2024): needles of several kinds, variable tracking, word counts, questions
// about one of many documents. The words are ours; parameters follow the paper's appendix B.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/fail.h"
#include "eval/generator.h"
#include "eval/metrics.h"
#include "eval/ruler_file.h"
#include "eval/task_list.h"
#include "eval/task_squad.h"
#include "eval/variable_chains.h"
#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

constexpr std::array kAllMetrics{Metric{"contains_all", of_answers<contains_all>}};
constexpr std::array kAnyMetrics{Metric{"contains_any", of_answers<contains_any>},
                                 Metric{"f1", of_answers<token_f1>}};
constexpr std::array<int64_t, 1> kLengths{4000};
constexpr int64_t kContexts = 10;  // of each length

enum class Hay { kNoise, kText, kNeedles };

// One of RULER's eight kinds of needles.
struct NeedleKind {
  const char* task;
  const char* summary;
  Hay hay;
  std::string (*key)(Draw&);
  std::string (*value)(Draw&);
  size_t n_keys;     // with those not asked for
  size_t n_values;   // of each key asked for
  size_t n_queries;  // keys asked for at once
};

constexpr NeedleKind kNeedleKinds[] = {
    {"ruler-niah-single-1", "One number in repeated noise", Hay::kNoise, word_pair, seven_digits, 1,
     1, 1},
    {"ruler-niah-single-2", "One number in text", Hay::kText, word_pair, seven_digits, 1, 1, 1},
    {"ruler-niah-single-3", "One UUID in text", Hay::kText, word_pair, uuid, 1, 1, 1},
    {"ruler-niah-multikey-1", "One of four numbers in text", Hay::kText, word_pair, seven_digits, 4,
     1, 1},
    {"ruler-niah-multikey-2", "One number among nothing but others", Hay::kNeedles, word_pair,
     seven_digits, 1, 1, 1},
    {"ruler-niah-multikey-3", "One UUID of a UUID among nothing but others", Hay::kNeedles, uuid,
     uuid, 1, 1, 1},
    {"ruler-niah-multivalue", "All four numbers of one key in text", Hay::kText, word_pair,
     seven_digits, 1, 4, 1},
    {"ruler-niah-multiquery", "The numbers of four keys in text", Hay::kText, word_pair,
     seven_digits, 4, 1, 4},
};

std::string needle_sentence(const std::string& key, const std::string& value) {
  return fmt::format("One of the special values of {} is {}.", key, value);
}

std::vector<std::string> noise(size_t n) {
  static constexpr const char* kNoise[] = {"The road is long.", "The hill is steep.",
                                           "The wind is cold.", "Up we go and down we come."};
  std::vector<std::string> all;
  for (size_t at = 0; at < n; ++at) all.emplace_back(kNoise[at % std::size(kNoise)]);
  return all;
}

// n needles with other keys and values; the first ones are the same for every n.
std::vector<std::string> other_needles(const NeedleKind& kind, size_t n, Draw draw,
                                       const std::vector<std::string>& taken) {
  std::vector<std::string> all;
  while (all.size() < n) {
    const std::string key = kind.key(draw);
    const std::string value = kind.value(draw);
    if (std::find(taken.begin(), taken.end(), key) == taken.end())
      all.push_back(needle_sentence(key, value));
  }
  return all;
}

TaskData make_needles(const DataRequest& request, const NeedleKind& kind) {
  const Filler filler(request.filler);
  const GeneratorPlan plan{kind.task, kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    const std::vector<std::string> keys = distinct(kind.n_keys, draw, kind.key);
    std::vector<std::string> answers;
    std::vector<Placed> placed;
    for (size_t at = 0; at < keys.size(); ++at) {
      for (const std::string& value : distinct(kind.n_values, draw, kind.value)) {
        placed.push_back(
            {static_cast<double>(draw.below(1001)) / 1000, needle_sentence(keys[at], value)});
        if (at < kind.n_queries) answers.push_back(value);
      }
    }
    std::string asked;
    for (size_t at = 0; at < kind.n_queries; ++at) {
      if (at > 0) asked += at + 1 == kind.n_queries ? " and " : ", ";
      asked += keys[at];
    }
    const Draw of_hay = draw;
    const auto hay = [&](size_t n) {
      if (kind.hay == Hay::kNoise) return noise(n);
      if (kind.hay == Hay::kText) return filler.sentences(n, of_hay);
      return other_needles(kind, n, of_hay, keys);
    };
    EvalContext context;
    context.text = haystack(place.length, request.count_tokens, hay, placed);
    const char* const what = answers.size() == 1 ? "What is the special value of {}?"
                                                 : "What are all the special values of {}?";
    context.questions.push_back(
        {.id = "0", .text = fmt::format(fmt::runtime(what), asked), .answers = answers});
    return context;
  });
}

TaskData make_tracking(const DataRequest& request) {
  constexpr size_t kHops = 4;
  const GeneratorPlan plan{"ruler-vt", kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    const std::vector<VariableChain> chains = draw_chains(1, kHops, draw);
    EvalContext context;
    context.text = haystack(place.length, request.count_tokens, noise, place_chains(chains, draw));
    context.questions.push_back(
        {.id = "0", .text = chain_question(chains[0]), .answers = chains[0].names});
    return context;
  });
}

// n different words: those of the lists in random order, then made-up ones.
std::vector<std::string> many_words(size_t n, Draw draw) {
  std::vector<std::string> words(nouns().begin(), nouns().end());
  words.insert(words.end(), adjectives().begin(), adjectives().end());
  draw.shuffle(words);
  while (words.size() < n) {
    std::string word = coined_word(draw);
    if (std::find(words.begin(), words.end(), word) == words.end())
      words.push_back(std::move(word));
  }
  words.resize(n);
  return words;
}

std::string numbered(std::vector<std::string> words, Draw draw) {
  draw.shuffle(words);
  std::string text;
  for (size_t at = 0; at < words.size(); ++at) {
    text += fmt::format("{}{}. {}", at == 0 ? "" : " ", at + 1, words[at]);
  }
  return text;
}

TaskData make_common_words(const DataRequest& request) {
  constexpr size_t kCommon = 10;
  const GeneratorPlan plan{"ruler-cwe", kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    // Thirty to three repetitions need about 1,500 tokens; shorter lists keep their ratio.
    const size_t n_common = place.length < 2000 ? 10 : 30;
    const size_t n_rare = n_common / 10;
    const Draw of_words = draw;
    const auto build = [&](size_t n) {
      const std::vector<std::string> words = many_words(kCommon + n, of_words);
      std::vector<std::string> list;
      for (size_t at = 0; at < words.size(); ++at) {
        list.insert(list.end(), at < kCommon ? n_common : n_rare, words[at]);
      }
      return "Below is a numbered list of words, some of which appear more often than others.\n\n" +
             numbered(std::move(list), of_words);
    };
    EvalContext context;
    context.text = longest_text(place.length, 1, request.count_tokens, build).text;
    context.questions.push_back({.id = "0",
                                 .text = "What are the 10 most common words of the list?",
                                 .answers = many_words(kCommon, of_words)});
    return context;
  });
}

TaskData make_frequent_words(const DataRequest& request) {
  constexpr double kZipf = 2.0;
  constexpr size_t kAsked = 3;
  constexpr size_t kFewest = 60;  // words: below that, ranks are tied
  const GeneratorPlan plan{"ruler-fwe", kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    const std::vector<std::string> words = distinct(2000, draw, coined_word);
    const Draw of_order = draw;
    const auto build = [&](size_t n) {
      std::vector<std::string> list;
      for (size_t rank = 1; rank <= words.size() && list.size() < n; ++rank) {
        // The share of a rank is 1 / (zeta(2) rank^2).
        const double share = 0.6079 / std::pow(static_cast<double>(rank), kZipf);
        const auto count = std::max<size_t>(1, std::lround(share * static_cast<double>(n)));
        list.insert(list.end(), std::min(count, n - list.size()), words[rank - 1]);
      }
      Draw order = of_order;
      order.shuffle(list);
      std::string text = "Below is a text of made-up words.\n\n";
      for (size_t at = 0; at < list.size(); ++at) text += (at == 0 ? "" : " ") + list[at];
      return text;
    };
    EvalContext context;
    context.text = longest_text(place.length, kFewest, request.count_tokens, build).text;
    context.questions.push_back({.id = "0",
                                 .text = "What are the three most frequent words of the text?",
                                 .answers = {words.begin(), words.begin() + kAsked}});
    return context;
  });
}

TaskData make_document_questions(const DataRequest& request) {
  const std::vector<EvalContext> paragraphs = in_turn(read_squad(request.path).contexts);
  const GeneratorPlan plan{"ruler-qa", kLengths, kContexts};
  return generate(request, plan, [&](const ContextPlace& place, Draw& draw) {
    const size_t asked = static_cast<size_t>(place.number) % paragraphs.size();
    std::vector<size_t> others;
    for (size_t at = 0; at < paragraphs.size(); ++at) {
      if (at != asked) others.push_back(at);
    }
    draw.shuffle(others);
    const Draw of_order = draw;
    const auto build = [&](size_t n) {
      std::vector<size_t> shown(others.begin(), others.begin() + static_cast<std::ptrdiff_t>(n));
      shown.push_back(asked);
      Draw order = of_order;
      order.shuffle(shown);
      std::string text;
      for (size_t at = 0; at < shown.size(); ++at) {
        text += fmt::format("{}Document {}:\n{}", at == 0 ? "" : "\n\n", at + 1,
                            paragraphs[shown[at]].text);
      }
      return text;
    };
    EvalContext context;
    context.text = longest_text(place.length, 0, request.count_tokens, build, others.size()).text;
    context.questions = paragraphs[asked].questions;
    return context;
  });
}

Task ruler_task(const char* name, const char* summary, int64_t max_tokens, bool takes_filler,
                TaskData (*make)(const DataRequest&), const char* instruction) {
  return {.name = name,
          .group = "ruler",
          .summary = summary,
          .need = DataNeed::kFileOrGenerated,
          .data_format = kRulerFormat,
          .instruction = instruction,
          .max_tokens = max_tokens,
          .lengths = kLengths,
          .takes_filler = takes_filler,
          .load =
              [make](const DataRequest& request) {
                return request.path.empty() ? make(request) : read_ruler(request);
              },
          .metrics = kAllMetrics};
}

}  // namespace

std::vector<Task> ruler_tasks() {
  std::vector<Task> all;
  for (const NeedleKind& kind : kNeedleKinds) {
    Task task = ruler_task(kind.task, kind.summary, 128, kind.hay == Hay::kText, nullptr, "");
    task.load = [&kind](const DataRequest& request) {
      return request.path.empty() ? make_needles(request, kind) : read_ruler(request);
    };
    all.push_back(std::move(task));
  }
  all.push_back(ruler_task("ruler-vt", "Variable tracking over four hops", 48, false, make_tracking,
                           "Answer with the names only."));
  all.push_back(ruler_task("ruler-cwe", "The ten most common words of a list", 120, false,
                           make_common_words, "Answer with the words only."));
  all.push_back(ruler_task("ruler-fwe", "The three most frequent made-up words", 50, false,
                           make_frequent_words, "Answer with the words only."));
  Task qa = ruler_task("ruler-qa", "Questions about one of many documents (SQuAD)", 32, false,
                       nullptr, "Answer briefly with a phrase from the text.");
  qa.need = DataNeed::kFile;
  qa.data_format = "SQuAD JSON, or RULER JSONL if its name ends in .jsonl";
  qa.metrics = kAnyMetrics;
  qa.load = [](const DataRequest& request) {
    return request.path.ends_with(".jsonl") ? read_ruler(request)
                                            : make_document_questions(request);
  };
  all.push_back(std::move(qa));
  return all;
}

}  // namespace ctxzip::eval
