#include "run_program.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <thread>

namespace ctxzip::cli {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void redirect(int fd, const fs::path& path, int flags) {
  const int file = open(path.c_str(), flags, 0600);
  if (file < 0 || dup2(file, fd) < 0) _exit(126);
}

[[noreturn]] void become_program(const ProgramRun& run, const fs::path& streams, int terminal) {
  redirect(STDIN_FILENO, streams / "in", O_RDONLY);
  redirect(STDOUT_FILENO, streams / "out", O_WRONLY | O_CREAT);
  if (terminal >= 0) {
    dup2(terminal, STDERR_FILENO);
    setenv("TERM", "xterm", 1);
  } else {
    redirect(STDERR_FILENO, streams / "err", O_WRONLY | O_CREAT);
  }
  if (!run.folder.empty() && chdir(run.folder.c_str()) != 0) _exit(126);
  for (const auto& [name, value] : run.environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments{const_cast<char*>(CTXZIP_BINARY)};
  for (const std::string& argument : run.arguments) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);
  execv(CTXZIP_BINARY, arguments.data());
  _exit(127);
}

// Until the other side is closed, which Linux reports as EIO.
std::string read_terminal(int master) {
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = read(master, buffer, sizeof buffer);
    if (n > 0) {
      text.append(buffer, static_cast<size_t>(n));
    } else if (n == 0 || errno != EINTR) {
      return text;
    }
  }
}

}  // namespace

ProgramResult run_program(const ProgramRun& run) {
  const ScratchFolder streams;
  streams.write("in", run.input);
  int master = -1;
  int slave = -1;
  if (run.terminal && openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) {
    throw std::runtime_error("no pseudo terminal");
  }
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error("fork failed");
  if (pid == 0) become_program(run, streams.path(), slave);
  if (slave >= 0) close(slave);
  if (run.interrupt_after) {
    std::this_thread::sleep_for(*run.interrupt_after);
    kill(pid, SIGINT);
  }
  ProgramResult result;
  if (run.terminal) {
    result.err = read_terminal(master);
    close(master);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  result.out = streams.read("out");
  if (!run.terminal) result.err = streams.read("err");
  return result;
}

ScratchFolder::ScratchFolder() {
  std::string pattern = (fs::temp_directory_path() / "ctxzip_cli_test_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no scratch folder");
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void ScratchFolder::write(const std::string& name, const std::string& content) const {
  std::ofstream(path_ / name, std::ios::binary) << content;
}

std::string ScratchFolder::read(const std::string& name) const { return read_file(path_ / name); }

std::vector<std::string> ScratchFolder::names() const {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(path_)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace ctxzip::cli
