#include "eval/needle_text.h"

#include <algorithm>
#include <numeric>

#include "core/fail.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kEdge = 16;
constexpr int64_t kWords = kNeedleVocabulary - kFirstWord;
constexpr int64_t kTries = 10000;

// splitmix64's output function.
uint64_t mixed(uint64_t n) {
  n += 0x9E3779B97F4A7C15u;
  n = (n ^ (n >> 30)) * 0xBF58476D1CE4E5B9u;
  n = (n ^ (n >> 27)) * 0x94D049BB133111EBu;
  return n ^ (n >> 31);
}

Token any_word(Draw& draw) {
  return kFirstWord + static_cast<Token>(draw.below(static_cast<size_t>(kWords)));
}

Token next_word(Token word, Draw& draw) {
  if (draw.below(10) == 0) return any_word(draw);
  // Chances 1/rank, in parts of 840 = lcm(1..8): 840, 420, 280, ...
  constexpr size_t kParts = 840;
  size_t left = draw.below(kParts + 420 + 280 + 210 + 168 + 140 + 120 + 105);
  size_t rank = 0;
  while (left >= kParts / (rank + 1)) left -= kParts / ++rank;
  return successors(word)[rank];
}

// Where items may start so that none overlap.
class Places {
 public:
  explicit Places(int64_t n_tokens) : taken_(static_cast<size_t>(n_tokens)) {}

  bool take(int64_t first) {
    if (first < 0 || first + kItemTokens > static_cast<int64_t>(taken_.size())) return false;
    const auto begin = taken_.begin() + first;
    if (std::any_of(begin, begin + kItemTokens, [](char taken) { return taken != 0; }))
      return false;
    std::fill_n(begin, kItemTokens, 1);
    return true;
  }
  // A free place in [first, last].
  int64_t take_between(int64_t first, int64_t last, Draw& draw) {
    for (int64_t tries = 0; tries < kTries && first <= last; ++tries) {
      const int64_t place = draw.between(first, last);
      if (take(place)) return place;
    }
    fail(ErrorKind::kInvalidArgument,
         "a text of {} tokens has no room for so many needles: make it longer", taken_.size());
  }

 private:
  std::vector<char> taken_;
};

std::vector<Needle> place_needles(const NeedleTextOptions& options, Places& places, Draw& draw) {
  const int64_t n_tokens = options.n_tokens;
  const int64_t block = std::min(options.block_rows, n_tokens);
  std::vector<Needle> needles(static_cast<size_t>(options.n_needles));
  for (int64_t at = 0; at < options.n_needles; ++at) {
    Needle& needle = needles[static_cast<size_t>(at)];
    const int64_t start = block * draw.between(0, n_tokens / block - 1);
    if (at == 0) {
      needle.place = "block start";
      needle.first = places.take_between(start, start + kEdge - kItemTokens, draw);
    } else if (at == 1) {
      needle.place = "block end";
      needle.first = places.take_between(start + block - kEdge, start + block - kItemTokens, draw);
    } else if (at == 3 && places.take(needles[2].first + kItemTokens)) {
      needle.place = needles[2].place = "pair";
      needle.first = needles[2].first + kItemTokens;
    } else {
      needle.place = "anywhere";
      const int64_t step = n_tokens / options.n_needles;
      needle.first =
          places.take_between(at * step, std::min((at + 1) * step, n_tokens) - kItemTokens, draw);
    }
  }
  return needles;
}

}  // namespace

std::array<Token, kSuccessors> successors(Token word) {
  std::array<Token, kSuccessors> all;
  for (uint64_t rank = 0; rank < kSuccessors; ++rank) {
    const uint64_t number = mixed(static_cast<uint64_t>(word) * kSuccessors + rank);
    all[rank] = kFirstWord + static_cast<Token>(number % static_cast<uint64_t>(kWords));
  }
  return all;
}

NeedleText make_needle_text(const NeedleTextOptions& options, Draw& draw) {
  std::vector<Token> keys(static_cast<size_t>(kWords));
  std::iota(keys.begin(), keys.end(), kFirstWord);
  draw.shuffle(keys);
  const auto n_needles = static_cast<size_t>(options.n_needles);
  const auto n_distractors = static_cast<size_t>(options.n_distractors);
  if (n_needles + n_distractors > keys.size()) {
    fail(ErrorKind::kInvalidArgument, "{} needles and {} distractors: the language has {} keys",
         n_needles, n_distractors, keys.size());
  }
  NeedleText text;
  Places places(options.n_tokens);
  text.needles = place_needles(options, places, draw);
  text.tokens.assign(static_cast<size_t>(options.n_tokens), 0);
  const auto write = [&](int64_t first, Token mark, Token key) {
    const std::array<Token, kItemTokens> item = {mark, key, any_word(draw), any_word(draw)};
    std::copy(item.begin(), item.end(), text.tokens.begin() + first);
    return item;
  };
  for (size_t at = 0; at < n_needles; ++at) {
    Needle& needle = text.needles[at];
    needle.query = write(needle.first, kSetMark, keys[at]);
    needle.query[0] = kGetMark;
  }
  for (size_t at = 0; at < n_distractors; ++at) {
    const bool twin = at < std::min(n_distractors / 2, n_needles);
    write(places.take_between(0, options.n_tokens - kItemTokens, draw), kNoteMark,
          twin ? keys[at] : keys[n_needles + at]);
  }
  Token word = any_word(draw);
  for (Token& token : text.tokens) {
    if (token != 0) continue;
    word = next_word(word, draw);
    token = word;
  }
  draw.shuffle(text.needles);
  return text;
}

}  // namespace ctxzip::eval
