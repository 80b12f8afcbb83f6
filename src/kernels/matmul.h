// Products of many activation rows with a stored weight matrix, in float32: each weight is unpacked
// once for the whole batch. For the weight types that ggml multiplies row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ctxzip {

// (n_out, n_in), rows of `row_bytes`; every `block_values` values of a row are stored in
// `block_bytes` bytes, which `unpack` turns into floats.
struct WeightMatrix {
  const std::byte* data = nullptr;
  size_t row_bytes = 0;
  int64_t n_in = 0;  // a multiple of block_values
  int64_t n_out = 0;
  int64_t block_values = 1;  // divides kMatmulDepth
  size_t block_bytes = sizeof(float);
  void (*unpack)(const void* blocks, float* out, int64_t n_values) = nullptr;
};

// Work is split over threads in blocks of this many weight rows.
constexpr int64_t kMatmulRows = 32;
// Weights are unpacked this many columns at a time.
constexpr int64_t kMatmulDepth = 256;
// Fewer tokens than this are not accepted (and would not repay the unpacking).
constexpr int64_t kMatmulTokens = 32;

// For n_tokens >= kMatmulTokens: y (n_tokens, y_stride) gets columns [first, first + kMatmulRows),
// or up to n_out, of x (n_tokens, x_stride) times the transposed weights; strides in floats. Sums
// run over the columns in order, so results depend on the arguments only. Allocates nothing.
struct MatmulKernels {
  std::string_view name;  // "ref", "tuned"
  void (*multiply)(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
                   int64_t n_tokens, float* y, int64_t y_stride) noexcept;
};

const MatmulKernels& ref_matmul_kernels();
const MatmulKernels& tuned_matmul_kernels();

}  // namespace ctxzip
