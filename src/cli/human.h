// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace ctxzip::cli {

std::string format_count(int64_t n);         // "181,170"
std::string format_seconds(double seconds);  // "0.42 s", "3.1 s", "12 min 05 s", "2 h 03 min"
std::string format_percent(double share);    // "30.0%" of 0.3
std::string format_nll(double nats);         // "+0.012", "-0.004"

}  // namespace ctxzip::cli
