// Float32 products with weights unpacked into panels. Compiled once per Highway target.
#if defined(CTXZIP_KERNELS_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_MATMUL_INL_H_
#undef CTXZIP_KERNELS_MATMUL_INL_H_
#else
#define CTXZIP_KERNELS_MATMUL_INL_H_
#endif

#include <algorithm>

#include "kernels/matmul.h"
#include "kernels/panel_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

// Weights [first, first + kMatmulRows) x [begin, begin + n) as (column panel, n, kPanelCols); rows
// beyond the matrix are zeros.
void pack_weights(const WeightMatrix& weights, int64_t first, int64_t begin, int64_t n,
                  float* packed) {
  HWY_ALIGN float values[kMatmulDepth];
  const size_t offset = static_cast<size_t>(begin / weights.block_values) * weights.block_bytes;
  for (int64_t row = 0; row < kMatmulRows; ++row) {
    float* to = packed + row / kPanelCols * n * kPanelCols + row % kPanelCols;
    if (first + row < weights.n_out) {
      const size_t start = static_cast<size_t>(first + row) * weights.row_bytes + offset;
      weights.unpack(weights.data + start, values, n);
    } else {
      std::fill_n(values, n, 0.0f);
    }
    for (int64_t at = 0; at < n; ++at) to[at * kPanelCols] = values[at];
  }
}

// Adds rows [skip, kPanelQueries) of the accumulators to y, or sets y to them.
HWY_INLINE void store_panel(const TileAccumulators& acc, int64_t skip, int64_t n_cols, bool set,
                            float* y, int64_t y_stride) {
  const FloatTag d;
  HWY_ALIGN float row[kPanelCols];
  for (int64_t m = skip; m < kPanelQueries; ++m) {
    float* to = y + m * y_stride;
    if (n_cols == kPanelCols) {
      const auto low = set ? acc[m][0] : hn::Add(hn::LoadU(d, to), acc[m][0]);
      const auto high = set ? acc[m][1] : hn::Add(hn::LoadU(d, to + kPanelCols / 2), acc[m][1]);
      hn::StoreU(low, d, to);
      hn::StoreU(high, d, to + kPanelCols / 2);
      continue;
    }
    hn::Store(acc[m][0], d, row);
    hn::Store(acc[m][1], d, row + kPanelCols / 2);
    for (int64_t col = 0; col < n_cols; ++col) to[col] = set ? row[col] : to[col] + row[col];
  }
}

void multiply(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
              int64_t n_tokens, float* y, int64_t y_stride) noexcept {
  const FloatTag d;
  HWY_ALIGN float packed[kMatmulRows * kMatmulDepth];
  const int64_t n_cols = std::min(kMatmulRows, weights.n_out - first);
  for (int64_t begin = 0; begin < weights.n_in; begin += kMatmulDepth) {
    const int64_t n = std::min(kMatmulDepth, weights.n_in - begin);
    pack_weights(weights, first, begin, n, packed);
    for (int64_t token = 0; token < n_tokens; token += kPanelQueries) {
      // The last panel starts early enough to be full; rows that it repeats are not stored again.
      const int64_t start = std::min(token, n_tokens - kPanelQueries);
      for (int64_t col = 0; col < n_cols; col += kPanelCols) {
        TileAccumulators acc;
        for (int64_t m = 0; m < kPanelQueries; ++m) acc[m][0] = acc[m][1] = hn::Zero(d);
        multiply_panels(x + start * x_stride + begin, 1, x_stride, packed + col * n, n, acc);
        store_panel(acc, token - start, std::min(kPanelCols, n_cols - col), begin == 0,
                    y + start * y_stride + first + col, y_stride);
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
