#include "core/fail.h"

#include <cstdio>
#include <cstdlib>

namespace ctxzip::detail {

// The only place in the library that prints or ends the process.
void check_failed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "ctxzip: internal error at %s:%d: %s is false\n", file, line, expression);
  std::abort();
}

}  // namespace ctxzip::detail
