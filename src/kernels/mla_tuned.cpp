#include "kernels/mla.h"

// clang-format off: this order is Highway's.
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/mla_tuned.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/every_target.h"
#include "kernels/index_scan-inl.h"
#include "kernels/mla-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

MlaTarget mla_target() {
  return {hwy::TargetName(HWY_TARGET),
          {"tuned", pack_vectors, row_products, attend_shared, merge_partials, scan_index,
           index_scores}};
}

}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ctxzip {
namespace {

HWY_EXPORT(mla_target);

}  // namespace

const MlaKernels& tuned_mla_kernels() {
  static const MlaTarget kChosen = HWY_DYNAMIC_DISPATCH(mla_target)();
  return kChosen.kernels;
}

std::vector<MlaTarget> tuned_mla_targets() {
  return of_every_target([] { return HWY_DYNAMIC_DISPATCH(mla_target)(); });
}

}  // namespace ctxzip
#endif
