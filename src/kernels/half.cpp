#include "kernels/half.h"

// clang-format off: this order is Highway's.
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/half.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

void to_f16(const float* in, uint16_t* out, int64_t n) {
  int64_t at = 0;
// Highway's emulation of the conversion, used without F16C, does not round to nearest.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  const hn::Rebind<hwy::float16_t, decltype(d)> dh;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; at + lanes <= n; at += lanes) {
    hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, in + at)), dh,
               reinterpret_cast<hwy::float16_t*>(out + at));
  }
#endif
  for (; at < n; ++at) out[at] = float_to_half(in[at]);
}

}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ctxzip {

HWY_EXPORT(to_f16);

void to_f16(const float* in, uint16_t* out, int64_t n) noexcept {
  HWY_DYNAMIC_DISPATCH(to_f16)(in, out, n);
}

}  // namespace ctxzip
#endif
