// Running the built program as a user does, and looking at everything it leaves behind.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ctxzip::cli {

struct ProgramRun {
  std::vector<std::string> arguments;
  std::string input = {};             // standard input, a file
  std::filesystem::path folder = {};  // working folder; the current one if empty
  std::vector<std::pair<std::string, std::string>> environment = {};
  bool terminal = false;  // standard error is a terminal, not a file
  std::optional<std::chrono::milliseconds> interrupt_after = {};  // then SIGINT
};

struct ProgramResult {
  int exit_code = 0;  // 128 + the signal that ended it, as a shell shows it
  std::string out;
  std::string err;
};

// The program of this build (CTXZIP_BINARY).
ProgramResult run_program(const ProgramRun& run);

// A folder that is gone with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, const std::string& content) const;
  std::string read(const std::string& name) const;
  // Names of what it holds, sorted.
  std::vector<std::string> names() const;

 private:
  std::filesystem::path path_;
};

}  // namespace ctxzip::cli
