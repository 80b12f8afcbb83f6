// Products of activation rows with a quantised weight matrix, in float32: each block of weights is
// unpacked once for several tokens, and nothing is rounded to int8 as ggml's products do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/weight_blocks.h"

namespace ctxzip {

// (n_out, n_in), rows of `row_bytes`.
struct WeightMatrix {
  const std::byte* data = nullptr;
  size_t row_bytes = 0;
  int64_t n_in = 0;  // a multiple of kBlockValues
  int64_t n_out = 0;
  WeightType type = WeightType::kQ8_0;
};

// Work is split over threads in blocks of this many weight rows.
constexpr int64_t kMatmulRows = 32;

// y (n_tokens, y_stride) gets columns [first, first + kMatmulRows), or up to n_out, of x (n_tokens,
// x_stride) times the transposed weights; strides in floats. Results depend on the arguments only:
// the order of a sum is that of the columns from 32 tokens on, below it is interleaved. Allocates
// nothing.
struct MatmulKernels {
  std::string_view name;  // "ref", "tuned"
  void (*multiply)(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
                   int64_t n_tokens, float* y, int64_t y_stride) noexcept;
};

const MatmulKernels& ref_matmul_kernels();
const MatmulKernels& tuned_matmul_kernels();

}  // namespace ctxzip
