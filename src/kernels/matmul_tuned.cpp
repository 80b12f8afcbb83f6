#include "kernels/matmul.h"

// clang-format off: this order is Highway's.
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/matmul_tuned.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/matmul-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

MatmulKernels matmul_kernels() { return {"tuned", multiply}; }

}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ctxzip {
namespace {

HWY_EXPORT(matmul_kernels);

}  // namespace

const MatmulKernels& tuned_matmul_kernels() {
  static const MatmulKernels kKernels = HWY_DYNAMIC_DISPATCH(matmul_kernels)();
  return kKernels;
}

}  // namespace ctxzip
#endif
