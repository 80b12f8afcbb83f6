// The inner loop of every product of small matrices: a panel of rows times a panel of columns held
// in registers. Compiled once per Highway target.
#if defined(CTXZIP_KERNELS_PANEL_PRODUCT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_PANEL_PRODUCT_INL_H_
#undef CTXZIP_KERNELS_PANEL_PRODUCT_INL_H_
#else
#define CTXZIP_KERNELS_PANEL_PRODUCT_INL_H_
#endif

#include "kernels/attention_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

constexpr int64_t kPanelQueries = kManyRegisters ? 12 : 6;
constexpr int64_t kPanelCols = 2 * lanes_of<FloatTag>();

using TileAccumulators = hn::Vec<FloatTag>[kPanelQueries][2];

// acc[m][.] += sum over n of left[n * left_step + m * left_stride] * right[n][.].
HWY_INLINE void multiply_panels(const float* left, int64_t left_step, int64_t left_stride,
                                const float* right, int64_t n, TileAccumulators& acc) {
  const FloatTag d;
  for (int64_t at = 0; at < n; ++at) {
    const auto right0 = hn::Load(d, right);
    const auto right1 = hn::Load(d, right + kPanelCols / 2);
    for (int64_t m = 0; m < kPanelQueries; ++m) {
      const auto value = hn::Set(d, left[m * left_stride]);
      acc[m][0] = hn::MulAdd(right0, value, acc[m][0]);
      acc[m][1] = hn::MulAdd(right1, value, acc[m][1]);
    }
    left += left_step;
    right += kPanelCols;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
