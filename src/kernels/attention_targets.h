// The tuned kernels of each instruction set, for tests and benchmarks.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/attention.h"

namespace ctxzip {

struct TargetKernels {
  std::string_view target;
  AttentionKernels kernels;
};

// Every compiled instruction set that this CPU can run, best first. Not thread-safe: it overrides
// Highway's choice of target for a moment.
std::vector<TargetKernels> tuned_attention_targets();

}  // namespace ctxzip
