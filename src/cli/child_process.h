// Running another program, without a shell.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ctxzip/progress.h"

namespace ctxzip::cli {

struct ChildProcess {
  std::vector<std::string> arguments;  // the first is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment =
      {};  // on top of this process's own
  // Files that take its output; standard input is empty.
  std::string stdout_path;
  std::string stderr_path;
  bool append_stdout = false;
  const CancelToken* cancel = nullptr;
  std::function<void()> while_waiting = {};  // called a few times a second; may be empty
};

// Its exit code, or 128 + the signal that ended it. Throws Error: kNotFound (no such program), kIo,
// kCancelled (the child is ended first).
int run_child(const ChildProcess& child);

}  // namespace ctxzip::cli
