#include "eval/recall_policy.h"

#include <charconv>
#include <cstdint>
#include <utility>

namespace ctxzip::eval {
namespace {

// The positive number that all of `text` is.
std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

}  // namespace

std::optional<RecallOptions> find_policy(std::string_view name) {
  RecallOptions policy;
  policy.recall = name != "evicted";
  policy.sound = name == "recall-sound";
  if (name == "recall" || policy.sound || !policy.recall) return policy;
  for (const auto& [prefix, target] :
       {std::pair{std::string_view("recall-top"), &policy.top_per_head},
        std::pair{std::string_view("recall-"), &policy.sketch_rank}}) {
    if (!name.starts_with(prefix)) continue;
    const auto number = number_in(name.substr(prefix.size()));
    if (!number) return std::nullopt;
    *target = *number;
    return policy;
  }
  return std::nullopt;
}

}  // namespace ctxzip::eval
