// Rows of one head to 8-bit and 4-bit codes (layout: kernels/quantised_layout.h).
//
// The bytes are a function of the values alone: every step is a single IEEE operation. An element
// is within half a scale of its source, plus f16's rounding of scale and min. Infinities and values
// beyond f16's range are stored as its largest value, NaN as 0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quantised_layout.h"

namespace ctxzip {

// Rows (n_rows, head_dim) of type kF32 or kF16, aligned for that type.
struct DenseRows {
  RowType type;
  const void* data;
  int64_t n_rows;
};

// Write layout.key_bytes(n_rows) and layout.value_bytes(n_rows) bytes.
void quantise_keys(const QuantisedLayout& layout, const DenseRows& rows, std::byte* out);
void quantise_values(const QuantisedLayout& layout, const DenseRows& rows, std::byte* out);

}  // namespace ctxzip
