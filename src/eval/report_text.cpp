#include "eval/report_text.h"

#include <fmt/format.h>

#include "eval/word_list.h"

namespace ctxzip::eval {

MadeUpReport make_up_report(const Filler& filler, Draw& draw) {
  static constexpr const char* kDeeds[] = {"rebuild", "move",    "repair",
                                           "extend",  "restore", "replace"};
  static constexpr const char* kTroubles[] = {
      "the soft ground near the river",  "a shortage of seasoned oak",
      "a quarrel between two suppliers", "the floods of the second week",
      "a missing set of drawings",       "the weight of the old foundations"};
  static constexpr const char* kOutcomes[] = {
      "it was opened a month early",        "the council asked for a second one",
      "half of it had to be taken down",    "visitors came from three counties",
      "it was named after its first guard", "the old one was kept as a museum"};
  const std::string person = draw.one_of(people());
  const std::string deed = draw.one_of(kDeeds);
  const std::string adjective = draw.one_of(adjectives());
  const std::string thing = adjective + " " + draw.one_of(nouns());
  const std::string town = draw.one_of(towns());
  const int64_t weeks = draw.between(5, 60);
  const int64_t cost = draw.between(11, 99) * 100;
  const std::string trouble = draw.one_of(kTroubles);
  const std::string outcome = draw.one_of(kOutcomes);
  const std::vector<std::string> between = filler.sentences(7, Draw(draw.below(1u << 30)));
  MadeUpReport report;
  report.title = fmt::format("the {} of {}", thing, town);
  report.sentences = {fmt::format("{} was asked to {} the {} of {}.", person, deed, thing, town),
                      between[0],
                      between[1],
                      fmt::format("The work took {} weeks.", weeks),
                      between[2],
                      fmt::format("The main difficulty was {}.", trouble),
                      between[3],
                      between[4],
                      fmt::format("In all {} crowns were spent.", cost),
                      between[5],
                      between[6],
                      fmt::format("In the end {}.", outcome)};
  report.summary = fmt::format(
      "{} was asked to {} the {} of {}, which took {} weeks and {} crowns; the main difficulty was "
      "{}, and in the end {}.",
      person, deed, thing, town, weeks, cost, trouble, outcome);
  return report;
}

}  // namespace ctxzip::eval
