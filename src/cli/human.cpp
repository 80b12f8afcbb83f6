#include "cli/human.h"

#include <fmt/format.h>

#include <cmath>

namespace ctxzip::cli {

std::string format_count(int64_t n) {
  const std::string digits = fmt::format("{}", n < 0 ? -n : n);
  std::string grouped;
  for (size_t at = 0; at < digits.size(); ++at) {
    if (at > 0 && (digits.size() - at) % 3 == 0) grouped += ',';
    grouped += digits[at];
  }
  return n < 0 ? fmt::format("-{}", grouped) : grouped;
}

std::string format_seconds(double seconds) {
  if (!(seconds >= 0)) seconds = 0;
  if (seconds < 1) return fmt::format("{:.2f} s", seconds);
  if (seconds < 59.95) return fmt::format("{:.1f} s", seconds);
  const int64_t whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::string format_percent(double share) { return fmt::format("{:.1f}%", share * 100); }

std::string format_nll(double nats) { return fmt::format("{:+.3f}", nats); }

}  // namespace ctxzip::cli
