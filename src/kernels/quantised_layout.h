// How the K and V rows of one head are stored as 8-bit or 4-bit codes.
//
// A value is scale * code + min, both f16, code from 0 to 255 or 15. Keys have a scale and a min
// for each channel and group of 64 rows (their outliers stay in the same channels: KIVI, arXiv
// 2402.02750), values for each row. Keys and values of a head are one block of bytes each:
//   keys:   for each group of 64 rows: scale f16[head_dim], min f16[head_dim], its strips' codes
//   values: for each strip of 32 rows: scale f16[32], min f16[32], its codes
// The last strip is padded with zero codes, scales and mins; the last group has one or two strips.
//
// Codes lie in quads, in the direction that the kernels sum over: four channels of a key, one
// channel of four rows of values. A vector register takes the quads of neighbouring lanes: rows of
// a key strip, channels of values.
//   q8 keys   (channel / 4, row, channel % 4)        values (row / 4, channel, row % 4)
//   q4 keys   (channel / 8, row, channel % 4)        values (row / 8, channel, row % 4)
// where a q4 byte holds two quads' codes: the low bits the first quad's, the high bits the
// second's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/half.h"
#include "kernels/row_type.h"

namespace ctxzip {

constexpr int64_t kStripRows = 32;
constexpr int64_t kGroupRows = 64;

// Where a code is: byte relative to the codes of its strip, and its lowest bit there.
struct CodePlace {
  int64_t byte;
  int shift;
};

// Offsets and sizes are in bytes, multiples of 32 but for single scales and codes. head_dim is a
// multiple of 8.
struct QuantisedLayout {
  RowType type;
  int64_t head_dim;

  constexpr int bits() const { return type == RowType::kQ8 ? 8 : 4; }
  constexpr int max_code() const { return (1 << bits()) - 1; }

  static constexpr int64_t n_strips(int64_t n_rows) {
    return (n_rows + kStripRows - 1) / kStripRows;
  }
  static constexpr int64_t n_groups(int64_t n_rows) {
    return (n_rows + kGroupRows - 1) / kGroupRows;
  }
  constexpr int64_t strip_codes_bytes() const { return kStripRows / 8 * bits() * head_dim; }
  constexpr int64_t key_scales_bytes() const { return 4 * head_dim; }
  static constexpr int64_t value_scales_bytes() { return 4 * kStripRows; }

  // All keys, all values of a head with n_rows rows.
  constexpr int64_t key_bytes(int64_t n_rows) const {
    return n_groups(n_rows) * key_scales_bytes() + n_strips(n_rows) * strip_codes_bytes();
  }
  constexpr int64_t value_bytes(int64_t n_rows) const {
    return n_strips(n_rows) * (value_scales_bytes() + strip_codes_bytes());
  }

  constexpr int64_t key_group(int64_t group) const {
    return group * (key_scales_bytes() + kGroupRows / kStripRows * strip_codes_bytes());
  }
  constexpr int64_t key_codes(int64_t strip) const {
    return (strip * kStripRows / kGroupRows + 1) * key_scales_bytes() + strip * strip_codes_bytes();
  }
  constexpr int64_t value_strip(int64_t strip) const {
    return strip * (value_scales_bytes() + strip_codes_bytes());
  }
  constexpr int64_t value_codes(int64_t strip) const {
    return value_strip(strip) + value_scales_bytes();
  }

  // `row` counts from the strip's start.
  constexpr CodePlace key_code(int64_t row, int64_t channel) const {
    return code(row, kStripRows, channel);
  }
  constexpr CodePlace value_code(int64_t row, int64_t channel) const {
    return code(channel, head_dim, row);
  }

 private:
  // `at` counts in the direction of the quads.
  constexpr CodePlace code(int64_t lane, int64_t n_lanes, int64_t at) const {
    if (bits() == 8) return {(at / 4 * n_lanes + lane) * 4 + at % 4, 0};
    return {(at / 8 * n_lanes + lane) * 4 + at % 4, at % 8 < 4 ? 0 : 4};
  }
};

namespace detail {

inline double read_half(const std::byte* halves, int64_t at) {
  const std::byte* bytes = halves + 2 * at;
  return half_to_float(
      static_cast<uint16_t>(std::to_integer<int>(bytes[0]) | std::to_integer<int>(bytes[1]) << 8));
}

inline double read_code(const QuantisedLayout& layout, const std::byte* codes, CodePlace place) {
  return std::to_integer<int>(codes[place.byte]) >> place.shift & layout.max_code();
}

}  // namespace detail

// The exact value of one element, as the reference kernels and tests see it.
inline double key_value(const QuantisedLayout& layout, const void* keys, int64_t row,
                        int64_t channel) {
  const auto* bytes = static_cast<const std::byte*>(keys);
  const std::byte* scales = bytes + layout.key_group(row / kGroupRows);
  const std::byte* codes = bytes + layout.key_codes(row / kStripRows);
  return detail::read_half(scales, channel) *
             detail::read_code(layout, codes, layout.key_code(row % kStripRows, channel)) +
         detail::read_half(scales, layout.head_dim + channel);
}

inline double value_value(const QuantisedLayout& layout, const void* values, int64_t row,
                          int64_t channel) {
  const auto* bytes = static_cast<const std::byte*>(values);
  const int64_t in_strip = row % kStripRows;
  const std::byte* scales = bytes + layout.value_strip(row / kStripRows);
  const std::byte* codes = bytes + layout.value_codes(row / kStripRows);
  return detail::read_half(scales, in_strip) *
             detail::read_code(layout, codes, layout.value_code(in_strip, channel)) +
         detail::read_half(scales, kStripRows + in_strip);
}

}  // namespace ctxzip
