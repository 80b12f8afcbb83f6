// The cache policies that a run compares: the full cache, every method of zip, and the query-aware
// settings of some ("snapkv-prefill", "snapkv-reuse", ...).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "ctxzip/zip.h"

namespace ctxzip::eval {

// When a context is compressed: before any question; anew for each one, which the scores know; or
// once, for the first question, and used for all (arXiv 2505.23416, figure 1).
enum class QuerySetting : uint8_t { kAgnostic, kPrefill, kReuse };

struct EvalMethod {
  std::string name;
  // Whose scores decide what stays; nothing: everything stays, at ratio 1 only.
  std::optional<Method> scores;
  QuerySetting query = QuerySetting::kAgnostic;
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
