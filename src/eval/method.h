// The cache policies that a run compares. A new method is its scores in src/score and a line here.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "ctxzip/zip.h"

namespace ctxzip::eval {

struct EvalMethod {
  const char* name;
  // Whose scores decide what stays; nothing: everything stays, at ratio 1 only.
  std::optional<Method> scores;
};

// In the order of --help.
std::span<const EvalMethod> methods();
const EvalMethod* find_method(std::string_view name);

// A method at one ratio: what one zipped context is made with.
struct Variant {
  const EvalMethod* method = nullptr;
  double ratio = 1;
};

}  // namespace ctxzip::eval
