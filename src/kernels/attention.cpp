#include "kernels/attention.h"

namespace ctxzip {

const AttentionKernels* find_attention_kernels(std::string_view name) {
  for (const AttentionKernels* kernels : {&ref_attention_kernels(), &tuned_attention_kernels()}) {
    if (kernels->name == name) return kernels;
  }
  return nullptr;
}

}  // namespace ctxzip
