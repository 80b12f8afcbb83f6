#include "kernels/attention.h"
#include "kernels/attention_targets.h"

// clang-format off: this order is Highway's.
#include "kernels/targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention_tuned.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/attention_decode-inl.h"
#include "kernels/attention_tile-inl.h"
#include "kernels/every_target.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

TargetKernels target_kernels() {
  return {
      hwy::TargetName(HWY_TARGET),
      {"tuned", scratch_bytes, attend_tile, attend_block, merge_blocks, column_max, column_sum}};
}

}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ctxzip {
namespace {

HWY_EXPORT(target_kernels);

const TargetKernels& chosen_target() {
  static const TargetKernels kChosen = HWY_DYNAMIC_DISPATCH(target_kernels)();
  return kChosen;
}

}  // namespace

const AttentionKernels& tuned_attention_kernels() { return chosen_target().kernels; }

std::string_view tuned_target_name() { return chosen_target().target; }

std::vector<TargetKernels> tuned_attention_targets() {
  return of_every_target([] { return HWY_DYNAMIC_DISPATCH(target_kernels)(); });
}

}  // namespace ctxzip
#endif
