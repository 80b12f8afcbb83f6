// How ctxzip reports failure: fail() for operations, CHECK for broken programs.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "ctxzip/error.h"

namespace ctxzip {

template <typename... Args>
[[noreturn]] void fail(ErrorKind kind, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(kind, fmt::format(format, std::forward<Args>(args)...));
}

namespace detail {
[[noreturn]] void check_failed(const char* file, int line, const char* expression);
}

}  // namespace ctxzip

// A bug if false, whatever the input: prints to stderr and aborts. Never reachable from a file, a
// flag or a request.
#define CHECK(condition)                  \
  (static_cast<bool>(condition) ? void(0) \
                                : ::ctxzip::detail::check_failed(__FILE__, __LINE__, #condition))
