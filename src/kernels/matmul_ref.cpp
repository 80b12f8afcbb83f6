#include <algorithm>

#include "kernels/matmul.h"

namespace ctxzip {
namespace {

void multiply(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
              int64_t n_tokens, float* y, int64_t y_stride) noexcept {
  const int64_t last = std::min(weights.n_out, first + kMatmulRows);
  for (int64_t out = first; out < last; ++out) {
    const std::byte* row = weights.data + static_cast<size_t>(out) * weights.row_bytes;
    for (int64_t token = 0; token < n_tokens; ++token) {
      double sum = 0;
      float values[kBlockValues];
      for (int64_t block = 0; block < weights.n_in / kBlockValues; ++block) {
        unpack_weights(weights.type,
                       row + static_cast<size_t>(block) * weight_block_bytes(weights.type), values);
        for (int64_t at = 0; at < kBlockValues; ++at) {
          sum += static_cast<double>(values[at]) * x[token * x_stride + block * kBlockValues + at];
        }
      }
      y[token * y_stride + out] = static_cast<float>(sum);
    }
  }
}

}  // namespace

const MatmulKernels& ref_matmul_kernels() {
  static constexpr MatmulKernels kKernels = {"ref", multiply};
  return kKernels;
}

}  // namespace ctxzip
