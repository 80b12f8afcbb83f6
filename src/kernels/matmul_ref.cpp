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
      float values[kMatmulDepth];
      for (int64_t begin = 0; begin < weights.n_in; begin += kMatmulDepth) {
        const int64_t n = std::min(kMatmulDepth, weights.n_in - begin);
        weights.unpack(
            row + static_cast<size_t>(begin / weights.block_values) * weights.block_bytes, values,
            n);
        for (int64_t at = 0; at < n; ++at) {
          sum += static_cast<double>(values[at]) * x[token * x_stride + begin + at];
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
