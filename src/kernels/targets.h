// Highway targets that the kernels are compiled for. Include before any hwy/ header.
#pragma once

// SSSE3 and the Ice Lake variant of AVX-512 add nothing here; vectors of unknown length (SVE, RVV)
// cannot be held in the arrays that block registers.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
