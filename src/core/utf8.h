// Well-formed UTF-8 out of bytes that may not be.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ctxzip {

// Replaces every maximal ill-formed part by U+FFFD and adds their number to *n_replaced.
std::string repair_utf8(std::string_view bytes, size_t* n_replaced = nullptr);

// Length of the longest start of `bytes` that does not end inside a character that more bytes could
// complete.
size_t complete_utf8(std::string_view bytes);

}  // namespace ctxzip
