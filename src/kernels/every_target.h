// What each compiled instruction set has to offer, for tests and benchmarks.
#pragma once

#include <cstdint>
#include <vector>

#include "hwy/targets.h"

namespace ctxzip {

// Calls choose() with Highway's choice set to each target in turn that this CPU can run, best
// first. Not thread-safe.
template <class Choose>
auto of_every_target(Choose choose) {
  std::vector<decltype(choose())> all;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    all.push_back(choose());
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return all;
}

}  // namespace ctxzip
