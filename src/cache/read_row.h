// One stored row as floats.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/fail.h"
#include "kernels/half.h"
#include "kernels/row_type.h"

namespace ctxzip {

// Row `row` of `rows` (row, out.size()), of a type that is stored row by row.
inline void read_row(RowType type, const void* rows, int64_t row, std::span<float> out) {
  CHECK(!is_quantised(type));
  const int64_t first = row * static_cast<int64_t>(out.size());
  if (type == RowType::kF32) {
    std::copy_n(static_cast<const float*>(rows) + first, out.size(), out.begin());
  } else {
    std::transform(static_cast<const uint16_t*>(rows) + first,
                   static_cast<const uint16_t*>(rows) + first + out.size(), out.begin(),
                   half_to_float);
  }
}

}  // namespace ctxzip
