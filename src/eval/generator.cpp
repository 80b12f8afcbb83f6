#include "eval/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "core/file.h"
#include "core/utf8.h"
#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

constexpr size_t kSentencesPerParagraph = 6;

// "Early in the spring, Clara Venn carried a rusty kettle to the market of Dunmere."
std::string made_up_sentence(Draw& draw) {
  static constexpr const char* kTimes[] = {
      "Early in the spring", "On most evenings", "After the long rain", "Before the first frost",
      "Now and then",        "Towards noon",     "In those years",      "When the market closed",
      "Late in the summer",  "On the way home",  "Once the fog lifted", "Without any hurry"};
  static constexpr const char* kDeeds[] = {"carried",  "mended",     "sold",     "painted",
                                           "borrowed", "looked for", "polished", "hid",
                                           "admired",  "weighed",    "sketched", "wrapped up"};
  static constexpr const char* kPlaces[] = {
      "near the station",  "behind the old mill",        "at the edge of the forest",
      "on the quay",       "in the upper street",        "beside the canal",
      "under the arcades", "by the town hall",           "in a narrow yard",
      "across the river",  "at the far end of the hall", "on the hill"};
  static constexpr const char* kReasons[] = {
      "and nobody asked why",           "because the days were short",
      "while the neighbours watched",   "as had been the custom for years",
      "although it was hardly needed",  "and went on with the usual work",
      "so that the room looked larger", "before the others came back",
      "and thought of something else",  "since there was time to spare"};
  const auto draw_thing = [&] {
    const std::string adjective = draw.one_of(adjectives());
    return adjective + " " + draw.one_of(nouns());
  };
  // Named one by one: the order in which a call's arguments are computed is the compiler's choice.
  const std::string thing = draw_thing();
  const std::string other = draw_thing();
  const char* const town = draw.one_of(towns());
  const char* const time = draw.one_of(kTimes);
  const char* const person = draw.one_of(people());
  const char* const deed = draw.one_of(kDeeds);
  const char* const place = draw.one_of(kPlaces);
  const char* const reason = draw.one_of(kReasons);
  switch (draw.below(4)) {
    case 0:
      return fmt::format("{}, {} {} the {} {}, {}.", time, person, deed, thing, place, reason);
    case 1:
      return fmt::format("The {} in {} stood {}, {}.", thing, town, place, reason);
    case 2:
      return fmt::format("{} {} the {} and left the {} {}.", person, deed, thing, other, place);
    default:
      return fmt::format("{}, people in {} spoke of the {}, {}.", time, town, thing, reason);
  }
}

// Ends at . ! ? before a blank, and at empty lines.
std::vector<std::string> split_sentences(std::string_view text) {
  std::vector<std::string> all;
  std::string sentence;
  const auto end_sentence = [&] {
    while (!sentence.empty() && sentence.back() == ' ') sentence.pop_back();
    if (!sentence.empty()) all.push_back(std::move(sentence));
    sentence.clear();
  };
  for (size_t at = 0; at < text.size(); ++at) {
    const bool blank = text[at] == ' ' || text[at] == '\n' || text[at] == '\r' || text[at] == '\t';
    if (!blank) {
      sentence += text[at];
      continue;
    }
    if (!sentence.empty() && sentence.back() != ' ') sentence += ' ';
    const bool stopped = at > 0 && std::string_view(".!?").find(text[at - 1]) != std::string::npos;
    const bool empty_line = text[at] == '\n' && at + 1 < text.size() && text[at + 1] == '\n';
    if (stopped || empty_line) end_sentence();
  }
  end_sentence();
  return all;
}

std::string join_sentences(const std::vector<std::string>& sentences) {
  std::string text;
  for (size_t at = 0; at < sentences.size(); ++at) {
    if (at > 0) text += at % kSentencesPerParagraph == 0 ? "\n\n" : " ";
    text += sentences[at];
  }
  return text;
}

std::vector<std::string> with_placed(std::vector<std::string> sentences,
                                     const std::vector<Placed>& placed) {
  std::vector<std::pair<size_t, const Placed*>> order;
  for (const Placed& one : placed) {
    order.emplace_back(std::lround(one.depth * static_cast<double>(sentences.size())), &one);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> all;
  auto next = order.begin();
  for (size_t at = 0; at <= sentences.size(); ++at) {
    for (; next != order.end() && next->first == at; ++next) all.push_back(next->second->sentence);
    if (at < sentences.size()) all.push_back(std::move(sentences[at]));
  }
  return all;
}

}  // namespace

TaskData generate(const DataRequest& request, const GeneratorPlan& plan,
                  const std::function<EvalContext(const ContextPlace&, Draw&)>& make) {
  const std::vector<int64_t> lengths =
      request.lengths.empty() ? std::vector<int64_t>(plan.lengths.begin(), plan.lengths.end())
                              : request.lengths;
  const auto n_lengths = static_cast<int64_t>(lengths.size());
  const int64_t n =
      request.n_contexts > 0 ? (request.n_contexts + n_lengths - 1) / n_lengths : plan.n_per_length;
  TaskData data;
  for (const int64_t length : lengths) {
    for (int64_t number = 0; number < n; ++number) {
      Draw draw(request.seed, fmt::format("{}/{}/{}", plan.task, length, number));
      EvalContext context = make({.length = length, .number = number, .n = n}, draw);
      context.id = fmt::format("{}.{}", length, number);
      context.group = std::to_string(length);
      data.contexts.push_back(std::move(context));
    }
  }
  return data;
}

FittedText longest_text(int64_t length, size_t least, const CountTokens& count_tokens,
                        const std::function<std::string(size_t)>& build, size_t most) {
  FittedText best{build(least), least};
  const int64_t smallest = count_tokens(best.text);
  if (smallest > length) {
    fail(ErrorKind::kInvalidArgument,
         "a length of {} tokens is too short for this task: its smallest context here has {}",
         length, smallest);
  }
  const auto fits = [&](size_t n) {
    std::string text = build(n);
    if (count_tokens(text) > length) return false;
    best = {std::move(text), n};
    return true;
  };
  size_t too_many = most + 1;
  for (size_t step = std::max<size_t>(least, 1); best.n_items + step < too_many; step *= 2) {
    const size_t tried = best.n_items + step;
    if (!fits(tried)) too_many = tried;
  }
  while (best.n_items + 1 < too_many) {
    const size_t middle = best.n_items + (too_many - best.n_items) / 2;
    if (!fits(middle)) too_many = middle;
  }
  return best;
}

Filler::Filler(const std::string& path) {
  if (path.empty()) return;
  const MappedFile file(path);
  of_file_ = split_sentences(
      repair_utf8({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}));
  if (of_file_.empty()) fail(ErrorKind::kCorruptFile, "{}: holds no text to fill with", path);
}

std::vector<std::string> Filler::sentences(size_t n, Draw draw) const {
  std::vector<std::string> all;
  all.reserve(n);
  const size_t start = of_file_.empty() ? 0 : draw.below(of_file_.size());
  for (size_t at = 0; at < n; ++at) {
    all.push_back(of_file_.empty() ? made_up_sentence(draw)
                                   : of_file_[(start + at) % of_file_.size()]);
  }
  return all;
}

std::string haystack(int64_t length, const CountTokens& count_tokens,
                     const std::function<std::vector<std::string>(size_t)>& sentences,
                     const std::vector<Placed>& placed) {
  const auto build = [&](size_t n) { return join_sentences(with_placed(sentences(n), placed)); };
  return longest_text(length, 1, count_tokens, build).text;
}

std::string haystack(int64_t length, const CountTokens& count_tokens, const Filler& filler,
                     const Draw& draw, const std::vector<Placed>& placed) {
  return haystack(
      length, count_tokens, [&](size_t n) { return filler.sentences(n, draw); }, placed);
}

std::vector<double> spread_depths(size_t n, Draw& draw) {
  std::vector<double> depths;
  for (size_t at = 0; at < n; ++at) depths.push_back(static_cast<double>(draw.below(1001)) / 1000);
  std::sort(depths.begin(), depths.end());
  return depths;
}

}  // namespace ctxzip::eval
