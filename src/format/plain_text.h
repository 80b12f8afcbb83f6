// Text that is safe to show: what the strings of a .ctz file may hold.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ctxzip {

// Whether `text` is valid UTF-8 without control characters (C0, DEL, C1).
bool is_plain_text(std::string_view text);

// `text` with every byte that breaks the rule replaced by '?', cut to at most `max_bytes` between
// characters.
std::string to_plain_text(std::string_view text, size_t max_bytes);

}  // namespace ctxzip
