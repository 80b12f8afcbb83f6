#include "engine/text_stream.h"

#include <algorithm>

#include "core/utf8.h"

namespace ctxzip {
namespace {

// Length of the longest end of `text` that is a proper start of `stop`.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n) {
    if (text.ends_with(stop.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

TextStream::TextStream(std::vector<std::string> stop_strings,
                       std::function<bool(std::string_view)> emit)
    : stop_strings_(std::move(stop_strings)), emit_(std::move(emit)) {
  std::erase_if(stop_strings_, [](const std::string& stop) { return stop.empty(); });
}

TextStream::State TextStream::release(size_t n_bytes) {
  if (n_bytes == 0) return State::kGoing;
  const std::string piece = repair_utf8(std::string_view(held_).substr(0, n_bytes));
  held_.erase(0, n_bytes);
  text_ += piece;
  return emit_ && !emit_(piece) ? State::kRefused : State::kGoing;
}

TextStream::State TextStream::push(std::string_view bytes) {
  held_ += bytes;
  size_t first_stop = std::string::npos;
  size_t held_back = 0;
  for (const std::string& stop : stop_strings_) {
    first_stop = std::min(first_stop, held_.find(stop));
    held_back = std::max(held_back, overlap(held_, stop));
  }
  if (first_stop != std::string::npos) {
    held_.erase(first_stop);
    const State state = release(held_.size());
    return state == State::kRefused ? state : State::kStopString;
  }
  return release(std::min(held_.size() - held_back, complete_utf8(held_)));
}

TextStream::State TextStream::finish() { return release(held_.size()); }

}  // namespace ctxzip
