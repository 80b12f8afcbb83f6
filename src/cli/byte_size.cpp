#include "cli/byte_size.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

namespace ctxzip::cli {

std::optional<int64_t> parse_byte_size(std::string_view text) {
  double number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string unit;
  for (const char* c = stop; c != text.data() + text.size(); ++c) {
    unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  static constexpr std::array<std::pair<std::string_view, double>, 12> kUnits{{
      {"", 1},
      {"b", 1},
      {"k", 0x1p10},
      {"kib", 0x1p10},
      {"kb", 1e3},
      {"m", 0x1p20},
      {"mib", 0x1p20},
      {"mb", 1e6},
      {"g", 0x1p30},
      {"gib", 0x1p30},
      {"gb", 1e9},
      {"t", 0x1p40},
  }};
  for (const auto& [name, scale] : kUnits) {
    if (name != unit) continue;
    const double bytes = number * scale;
    if (bytes < 1 || bytes >= 0x1p62) return std::nullopt;
    return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

std::string format_bytes(int64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  static constexpr std::array kUnits{"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.95 and up would print as 1024.0 of the smaller unit.
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kUnits[unit]);
}

}  // namespace ctxzip::cli
