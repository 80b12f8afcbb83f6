#include "cli/interrupt.h"

#include "cli/exit_code.h"

namespace ctxzip::cli {
namespace {

CancelToken token_of_process;
std::atomic<int> last_signal{SIGINT};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free,
              "a signal handler may only touch lock-free atomics");

void on_signal(int signal_number) {
  last_signal.store(signal_number, std::memory_order_relaxed);
  token_of_process.cancel();
}

void install(int signal_number, struct sigaction& old) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(signal_number, &action, &old);
}

}  // namespace

InterruptScope::InterruptScope() {
  token_of_process.reset();
  install(SIGINT, old_interrupt_);
  install(SIGTERM, old_terminate_);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &old_interrupt_, nullptr);
  sigaction(SIGTERM, &old_terminate_, nullptr);
}

const CancelToken* InterruptScope::token() const { return &token_of_process; }

int interrupted_exit_code() {
  return kExitSignalBase + last_signal.load(std::memory_order_relaxed);
}

}  // namespace ctxzip::cli
