// What the generators of synthetic contexts share.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "eval/draw.h"
#include "eval/task.h"

namespace ctxzip::eval {

struct GeneratorPlan {
  const char* task;
  std::span<const int64_t> lengths;  // unless the request says
  int64_t n_per_length;              // unless the request says
};

// Which of the contexts of one length is made.
struct ContextPlace {
  int64_t length = 0;  // tokens
  int64_t number = 0;  // 0 <= number < n
  int64_t n = 0;
};

// All contexts of a request. `make` gives text and questions; ids and groups are set here. Each
// context has random numbers of its own, which depend on seed, task, length and number only.
TaskData generate(const DataRequest& request, const GeneratorPlan& plan,
                  const std::function<EvalContext(const ContextPlace&, Draw&)>& make);

struct FittedText {
  std::string text;
  size_t n_items = 0;
};

// build(n) for the most items, at least `least` and at most `most`, with which it stays within
// `length` tokens. Throws Error{kInvalidArgument} when not even `least` items do.
FittedText longest_text(int64_t length, size_t least, const CountTokens& count_tokens,
                        const std::function<std::string(size_t)>& build,
                        size_t most = std::numeric_limits<size_t>::max() / 2);

// Sentences without meaning for any question.
class Filler {
 public:
  // Of a text file, or made up without a path. Throws Error: kNotFound, kIo, kCorruptFile (no
  // text).
  explicit Filler(const std::string& path);

  // The first n sentences from where `draw` starts; a text that ends begins again.
  std::vector<std::string> sentences(size_t n, Draw draw) const;

 private:
  std::vector<std::string> of_file_;
};

// A sentence and where it goes: 0 is before all others, 1 behind them.
struct Placed {
  double depth = 0;
  std::string sentence;
};

// The longest text of sentences with `placed` among them that has at most `length` tokens. Those of
// equal depth keep their order.
std::string haystack(int64_t length, const CountTokens& count_tokens,
                     const std::function<std::vector<std::string>(size_t)>& sentences,
                     const std::vector<Placed>& placed);
std::string haystack(int64_t length, const CountTokens& count_tokens, const Filler& filler,
                     const Draw& draw, const std::vector<Placed>& placed);

// Random depths, in ascending order.
std::vector<double> spread_depths(size_t n, Draw& draw);

}  // namespace ctxzip::eval
