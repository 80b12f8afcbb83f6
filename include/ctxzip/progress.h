// Progress, cancellation and log messages of long operations. The library itself never prints.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string_view>

#include "ctxzip/export.h"

namespace ctxzip {

// Set from any thread (or a signal handler); the running operation stops within about one batch and
// throws Error{kCancelled}. Reusable after reset().
class CancelToken {
 public:
  void cancel() noexcept { flag_.store(true, std::memory_order_relaxed); }
  void reset() noexcept { flag_.store(false, std::memory_order_relaxed); }
  bool cancelled() const noexcept { return flag_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> flag_{false};
};

enum class Stage { kLoad, kPrefill, kScore, kCheck, kCompact, kWrite };

// Name of a stage for people: "prefill", "score", ...
CTXZIP_API std::string_view stage_name(Stage stage);

// Called on the operation's own thread with done <= total, in tokens (bytes for kWrite).
using ProgressFn = std::function<void(Stage stage, int64_t done, int64_t total)>;

enum class LogLevel { kDebug, kInfo, kWarning, kError };
using LogFn = std::function<void(LogLevel level, std::string_view message)>;

// Process-wide sink for messages of ctxzip, ggml and llama; none (silence) by default. Thread-safe.
CTXZIP_API void set_log_sink(LogFn sink);

}  // namespace ctxzip
