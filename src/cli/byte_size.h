// Sizes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ctxzip::cli {

// A number of bytes with an optional unit: K, M, G (or KiB, MiB, GiB) are powers of 1024, KB, MB,
// GB powers of 1000; any case. Nothing for anything else, for less than one byte and for 2^62 or
// more.
std::optional<int64_t> parse_byte_size(std::string_view text);

// "913 B", "14.2 MiB".
std::string format_bytes(int64_t bytes);

}  // namespace ctxzip::cli
