#include "format/plain_text.h"

#include <cstdint>

namespace ctxzip {
namespace {

// Bytes of the plain character that `text` starts with; 0 if it starts with none.
size_t plain_character_bytes(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < n) return 0;
  uint32_t code = lead & (0xffu >> (n + 1));
  for (size_t at = 1; at < n; ++at) {
    if ((byte(at) & 0xc0) != 0x80) return 0;
    code = code << 6 | (byte(at) & 0x3fu);
  }
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  return code < 0xa0 || overlong || surrogate || code > 0x10ffff ? 0 : n;
}

}  // namespace

bool is_plain_text(std::string_view text) {
  while (!text.empty()) {
    const size_t n = plain_character_bytes(text);
    if (n == 0) return false;
    text.remove_prefix(n);
  }
  return true;
}

std::string to_plain_text(std::string_view text, size_t max_bytes) {
  std::string plain;
  while (!text.empty()) {
    const size_t n = plain_character_bytes(text);
    const std::string_view piece = n == 0 ? std::string_view("?") : text.substr(0, n);
    if (plain.size() + piece.size() > max_bytes) break;
    plain += piece;
    text.remove_prefix(n == 0 ? 1 : n);
  }
  return plain;
}

}  // namespace ctxzip
