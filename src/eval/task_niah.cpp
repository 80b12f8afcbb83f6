// A needle in a haystack (Kamradt 2023): one sentence at a known depth of a long text.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "eval/generator.h"
#include "eval/metrics.h"
#include "eval/task_list.h"
#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

constexpr std::array kMetrics{
    Metric{"substring", of_answers<substring_match>},
    Metric{"f1", of_answers<token_f1>},
    Metric{"rouge_l", of_answers<rouge_l>},
};
constexpr std::array<int64_t, 2> kLengths{500, 2000};
constexpr int64_t kDepths = 11;  // 0%, 10%, ... 100%

// All depths in turn; fewer contexts than depths are spread over them.
int64_t depth_percent(const ContextPlace& place) {
  if (place.n >= kDepths) return place.number % kDepths * 10;
  if (place.n == 1) return 50;
  return std::lround(10 * static_cast<double>(place.number) / static_cast<double>(place.n - 1)) *
         10;
}

std::string activity(Draw& draw) {
  static constexpr const char* kDeeds[] = {"eat a fig tart",          "fly a paper kite",
                                           "feed the swans",          "drink mint tea",
                                           "play a game of draughts", "read an old atlas",
                                           "sketch the rooftops",     "listen to the carillon"};
  const std::string deed = draw.one_of(kDeeds);
  const std::string adjective = draw.one_of(adjectives());
  return fmt::format("{} beside the {} {}", deed, adjective, draw.one_of(nouns()));
}

TaskData make(const DataRequest& request) {
  const Filler filler(request.filler);
  return generate(request, {"niah", kLengths, kDepths}, [&](const ContextPlace& place, Draw& draw) {
    const int64_t depth = depth_percent(place);
    const std::string town = draw.one_of(towns());
    const std::string answer = activity(draw);
    const std::string needle =
        fmt::format("The best thing to do in {} on a free afternoon is to {}.", town, answer);
    EvalContext context;
    context.text = haystack(place.length, request.count_tokens, filler, draw,
                            {{static_cast<double>(depth) / 100, needle}});
    context.questions.push_back(
        {.id = fmt::format("depth{}", depth),
         .text = fmt::format(
             "According to the text, what is the best thing to do in {} on a free afternoon?",
             town),
         .answers = {answer}});
    return context;
  });
}

}  // namespace

Task niah_task() {
  return {.name = "niah",
          .group = "retrieval",
          .summary = "A needle in a haystack: one sentence at depths of 0, 10, ... 100%",
          .need = DataNeed::kGenerated,
          .data_format = nullptr,
          .instruction = "Answer briefly with words from the text.",
          .max_tokens = 32,
          .lengths = kLengths,
          .takes_filler = true,
          .load = make,
          .metrics = kMetrics};
}

}  // namespace ctxzip::eval
