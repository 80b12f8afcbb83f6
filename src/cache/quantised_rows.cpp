#include "cache/quantised_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/half.h"

namespace ctxzip {
namespace {

constexpr float kLargestHalf = 65504;

float storable(float value) {
  return std::isnan(value) ? 0 : std::clamp(value, -kLargestHalf, kLargestHalf);
}

float element(const DenseRows& rows, int64_t at) {
  return storable(rows.type == RowType::kF32
                      ? static_cast<const float*>(rows.data)[at]
                      : half_to_float(static_cast<const uint16_t*>(rows.data)[at]));
}

// The next f16 above a finite one that is not the largest.
uint16_t next_half(uint16_t half) {
  if (half == 0x8000u) return 1;
  return static_cast<uint16_t>(half & 0x8000u ? half - 1 : half + 1);
}

uint16_t half_at_least(float value) {
  const uint16_t half = float_to_half(value);
  return half_to_float(half) < value ? next_half(half) : half;
}

uint16_t half_at_most(float value) {
  return static_cast<uint16_t>(half_at_least(-value) ^ 0x8000u);
}

// Maps the values of a group to codes: from the smallest at code 0 to the largest at the last code.
class Range {
 public:
  Range(float smallest, float largest, int max_code)
      : min_half_(half_at_most(smallest)), max_code_(static_cast<float>(max_code)) {
    min_ = half_to_float(min_half_);
    scale_half_ = half_at_least((largest - min_) / max_code_);
    scale_ = half_to_float(scale_half_);
  }

  uint16_t scale_half() const { return scale_half_; }
  uint16_t min_half() const { return min_half_; }
  int code(float value) const {
    if (scale_ == 0) return 0;
    const float nearest = std::floor((value - min_) / scale_ + 0.5f);
    return static_cast<int>(std::clamp(nearest, 0.0f, max_code_));
  }

 private:
  uint16_t min_half_;
  uint16_t scale_half_ = 0;
  float min_ = 0;
  float scale_ = 0;
  float max_code_;
};

void write_half(uint16_t half, std::byte* halves, int64_t at) {
  std::memcpy(halves + 2 * at, &half, sizeof(half));
}

// The codes there are zero so far.
void write_code(int code, CodePlace place, std::byte* codes) {
  codes[place.byte] |= static_cast<std::byte>(code << place.shift);
}

// The range of n elements from `first`, `step` apart.
Range range_of(const DenseRows& rows, int64_t first, int64_t step, int64_t n, int max_code) {
  float smallest = element(rows, first);
  float largest = smallest;
  for (int64_t at = 1; at < n; ++at) {
    const float value = element(rows, first + at * step);
    smallest = std::min(smallest, value);
    largest = std::max(largest, value);
  }
  return {smallest, largest, max_code};
}

}  // namespace

void quantise_keys(const QuantisedLayout& layout, const DenseRows& rows, std::byte* out) {
  const int64_t head_dim = layout.head_dim;
  std::fill_n(out, layout.key_bytes(rows.n_rows), std::byte{0});
  for (int64_t first = 0; first < rows.n_rows; first += kGroupRows) {
    const int64_t end = std::min(first + kGroupRows, rows.n_rows);
    std::byte* scales = out + layout.key_group(first / kGroupRows);
    for (int64_t channel = 0; channel < head_dim; ++channel) {
      const Range range =
          range_of(rows, first * head_dim + channel, head_dim, end - first, layout.max_code());
      write_half(range.scale_half(), scales, channel);
      write_half(range.min_half(), scales, head_dim + channel);
      for (int64_t row = first; row < end; ++row) {
        write_code(range.code(element(rows, row * head_dim + channel)),
                   layout.key_code(row % kStripRows, channel),
                   out + layout.key_codes(row / kStripRows));
      }
    }
  }
}

void quantise_values(const QuantisedLayout& layout, const DenseRows& rows, std::byte* out) {
  const int64_t head_dim = layout.head_dim;
  std::fill_n(out, layout.value_bytes(rows.n_rows), std::byte{0});
  for (int64_t row = 0; row < rows.n_rows; ++row) {
    const int64_t strip = row / kStripRows;
    std::byte* scales = out + layout.value_strip(strip);
    const Range range = range_of(rows, row * head_dim, 1, head_dim, layout.max_code());
    write_half(range.scale_half(), scales, row % kStripRows);
    write_half(range.min_half(), scales, kStripRows + row % kStripRows);
    for (int64_t channel = 0; channel < head_dim; ++channel) {
      write_code(range.code(element(rows, row * head_dim + channel)),
                 layout.value_code(row % kStripRows, channel), out + layout.value_codes(strip));
    }
  }
}

}  // namespace ctxzip
