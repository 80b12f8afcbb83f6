#include "eval/method.h"

#include <array>

namespace ctxzip::eval {

std::span<const EvalMethod> methods() {
  static constexpr std::array kMethods{
      EvalMethod{"full", std::nullopt},
      EvalMethod{"kvzip", Method::kKvzip},
      EvalMethod{"random", Method::kRandom},
  };
  return kMethods;
}

const EvalMethod* find_method(std::string_view name) {
  for (const EvalMethod& method : methods()) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

}  // namespace ctxzip::eval
