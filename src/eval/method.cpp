#include "eval/method.h"

#include <vector>

#include "engine/query_scores.h"

namespace ctxzip::eval {

std::span<const EvalMethod> methods() {
  static const std::vector<EvalMethod> kMethods = [] {
    std::vector<EvalMethod> all = {{"full", std::nullopt}};
    for (const MethodInfo& info : zip_methods()) {
      all.push_back({std::string(info.name), info.method});
    }
    for (const MethodInfo& info : zip_methods()) {
      if (!knows_queries(info.method)) continue;
      const std::string name(info.name);
      all.push_back({name + "-prefill", info.method, QuerySetting::kPrefill});
      all.push_back({name + "-reuse", info.method, QuerySetting::kReuse});
    }
    return all;
  }();
  return kMethods;
}

const EvalMethod* find_method(std::string_view name) {
  for (const EvalMethod& method : methods()) {
    if (name == method.name) return &method;
  }
  return nullptr;
}

}  // namespace ctxzip::eval
