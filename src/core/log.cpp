#include "core/log.h"

#include <ggml.h>
#include <llama.h>
#include <log.h>

#include <memory>
#include <mutex>
#include <string>

namespace ctxzip {
namespace {

struct Sink {
  // Recursive, so that a sink may itself log; held during the call, so that no sink runs after
  // set_log_sink() replaced it.
  std::recursive_mutex mutex;
  std::shared_ptr<const LogFn> function;
};

// Leaked: backends may log while static objects are destroyed.
Sink& sink() {
  static Sink* const instance = new Sink;
  return *instance;
}

LogLevel level_of(ggml_log_level level) {
  switch (level) {
    case GGML_LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case GGML_LOG_LEVEL_WARN:
      return LogLevel::kWarning;
    case GGML_LOG_LEVEL_ERROR:
      return LogLevel::kError;
    default:
      return LogLevel::kInfo;
  }
}

// Backends send lines in pieces (GGML_LOG_LEVEL_CONT continues one); the sink gets whole lines.
struct PendingLine {
  LogLevel level = LogLevel::kInfo;
  std::string text;
};

void backend_callback(ggml_log_level level, const char* text, void*) noexcept {
  try {
    thread_local PendingLine pending;
    if (level != GGML_LOG_LEVEL_CONT) {
      if (!pending.text.empty()) log_message(pending.level, pending.text);
      pending = {level_of(level), {}};
    }
    pending.text += text;
    size_t begin = 0;
    for (size_t end; (end = pending.text.find('\n', begin)) != std::string::npos; begin = end + 1) {
      if (end > begin) {
        log_message(pending.level, std::string_view(pending.text).substr(begin, end - begin));
      }
    }
    pending.text.erase(0, begin);
  } catch (...) {
    // A message lost for want of memory must not unwind through C code.
  }
}

}  // namespace

void set_log_sink(LogFn function) {
  auto shared = function ? std::make_shared<const LogFn>(std::move(function)) : nullptr;
  const std::lock_guard lock(sink().mutex);
  sink().function.swap(shared);
}

void log_message(LogLevel level, std::string_view message) {
  const std::lock_guard lock(sink().mutex);
  // A copy, since the sink may replace itself.
  const std::shared_ptr<const LogFn> function = sink().function;
  if (function) (*function)(level, message);
}

void capture_backend_logs() {
  static std::once_flag once;
  std::call_once(once, [] {
    ggml_log_set(backend_callback, nullptr);
    llama_log_set(backend_callback, nullptr);
    // llama-common prints from a thread of its own, INFO to stdout, and has no callback: silence
    // it.
    common_log_set_verbosity_thold(-1);
    common_log_pause(common_log_main());
  });
}

}  // namespace ctxzip
