#include "core/utf8.h"

#include <algorithm>
#include <cstdint>

namespace ctxzip {
namespace {

struct Sequence {
  size_t n_bytes;  // well-formed bytes from here on, at least 1
  bool complete;   // a whole character
  bool more_could_help;
};

// Unicode 15, table 3-7: the second byte's range depends on the first.
Sequence read_sequence(std::string_view bytes) {
  const auto first = static_cast<uint8_t>(bytes[0]);
  if (first < 0x80) return {1, true, false};
  size_t wanted = 0;
  if (first >= 0xC2 && first <= 0xDF) wanted = 2;
  if (first >= 0xE0 && first <= 0xEF) wanted = 3;
  if (first >= 0xF0 && first <= 0xF4) wanted = 4;
  if (wanted == 0) return {1, false, false};
  for (size_t at = 1; at < wanted; ++at) {
    if (at == bytes.size()) return {at, false, true};
    const auto byte = static_cast<uint8_t>(bytes[at]);
    uint8_t low = 0x80;
    uint8_t high = 0xBF;
    if (at == 1) {
      if (first == 0xE0) low = 0xA0;
      if (first == 0xED) high = 0x9F;
      if (first == 0xF0) low = 0x90;
      if (first == 0xF4) high = 0x8F;
    }
    if (byte < low || byte > high) return {at, false, false};
  }
  return {wanted, true, false};
}

}  // namespace

std::string repair_utf8(std::string_view bytes, size_t* n_replaced) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Sequence sequence = read_sequence(bytes);
    if (sequence.complete) {
      text.append(bytes.substr(0, sequence.n_bytes));
    } else {
      text += "\xEF\xBF\xBD";
      if (n_replaced != nullptr) ++*n_replaced;
    }
    bytes.remove_prefix(sequence.n_bytes);
  }
  return text;
}

size_t complete_utf8(std::string_view bytes) {
  // Only the last three bytes can start a character that is not finished.
  for (size_t back = std::min<size_t>(3, bytes.size()); back >= 1; --back) {
    const std::string_view end = bytes.substr(bytes.size() - back);
    const bool starts = (static_cast<uint8_t>(end[0]) & 0xC0) == 0xC0;
    if (starts && read_sequence(end).more_could_help) return bytes.size() - back;
  }
  return bytes.size();
}

}  // namespace ctxzip
