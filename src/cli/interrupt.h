// Ctrl-C and SIGTERM as cancellation.
#pragma once

#include <csignal>

#include "ctxzip/progress.h"

namespace ctxzip::cli {

// While alive, the first SIGINT or SIGTERM sets the token and the next one kills as usual. One
// at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  const CancelToken* token() const;

 private:
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};

// The exit code of a cancelled run: 130 after Ctrl-C.
int interrupted_exit_code();

}  // namespace ctxzip::cli
