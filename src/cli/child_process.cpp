#include "cli/child_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/fail.h"

extern char** environ;

namespace ctxzip::cli {
namespace {

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void open(int fd, const std::string& path, int flags) {
    posix_spawn_file_actions_addopen(&actions_, fd, path.c_str(), flags, 0644);
  }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

std::vector<std::string> merged_environment(const ChildProcess& child) {
  std::vector<std::string> merged;
  for (const auto& [name, value] : child.environment) merged.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : child.environment) replaced |= text.starts_with(name + "=");
    if (!replaced) merged.push_back(text);
  }
  return merged;
}

std::vector<char*> null_terminated(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

int exit_code(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int wait_for(pid_t pid, const ChildProcess& child) {
  constexpr auto kPoll = std::chrono::milliseconds(50);
  int status = 0;
  for (;;) {
    const pid_t done = waitpid(pid, &status, WNOHANG);
    if (done == pid) break;
    if (done < 0 && errno != EINTR) {
      fail(ErrorKind::kIo, "cannot wait for {}: {}", child.arguments[0], std::strerror(errno));
    }
    if (child.cancel != nullptr && child.cancel->cancelled()) {
      kill(pid, SIGTERM);
      while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
      break;
    }
    if (child.while_waiting) child.while_waiting();
    std::this_thread::sleep_for(kPoll);
  }
  // A Ctrl-C at the terminal reaches the child as well, which may end first.
  if (child.cancel != nullptr && child.cancel->cancelled()) {
    fail(ErrorKind::kCancelled, "interrupted");
  }
  return exit_code(status);
}

}  // namespace

int run_child(const ChildProcess& child) {
  FileActions actions;
  actions.open(STDIN_FILENO, "/dev/null", O_RDONLY);
  actions.open(STDOUT_FILENO, child.stdout_path,
               O_WRONLY | O_CREAT | (child.append_stdout ? O_APPEND : O_TRUNC));
  actions.open(STDERR_FILENO, child.stderr_path, O_WRONLY | O_CREAT | O_APPEND);
  std::vector<std::string> arguments = child.arguments;
  std::vector<std::string> environment = merged_environment(child);
  pid_t pid = 0;
  const int error =
      posix_spawnp(&pid, arguments[0].c_str(), actions.get(), nullptr,
                   null_terminated(arguments).data(), null_terminated(environment).data());
  if (error != 0) {
    fail(error == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo, "{} cannot be started: {}",
         arguments[0], std::strerror(error));
  }
  return wait_for(pid, child);
}

}  // namespace ctxzip::cli
