// Messages to the sink that set_log_sink() installed.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "ctxzip/progress.h"

namespace ctxzip {

// Thread-safe; drops the message when no sink is installed.
void log_message(LogLevel level, std::string_view message);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}

// Routes the process-global logs of ggml, llama and llama-common through the sink. Idempotent;
// called before the first use of any of them.
void capture_backend_logs();

}  // namespace ctxzip
