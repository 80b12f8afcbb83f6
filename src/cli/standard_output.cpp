#include "cli/standard_output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/fail.h"

namespace ctxzip::cli {

void print_out(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void flush_out() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fail(ErrorKind::kIo, "standard output cannot be written: {}", std::strerror(errno));
  }
}

void print_note(std::string_view text) { fmt::print(stderr, "note: {}\n", text); }

}  // namespace ctxzip::cli
