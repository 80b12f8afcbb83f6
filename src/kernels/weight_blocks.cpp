#include "kernels/weight_blocks.h"

#include <cstring>

#include "kernels/half.h"

namespace ctxzip {
namespace {

float half_at(const std::byte* at) {
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return half_to_float(bits);
}

// The first sixteen values are in the low halves of sixteen bytes, the others in the high ones.
int nibble(const std::byte* quants, int64_t value) {
  const int both = std::to_integer<int>(quants[value % 16]);
  return value < 16 ? both & 15 : both >> 4;
}

// A nibble with its fifth bit, of which `bits` has one a value.
int five_bits(const std::byte* bits, const std::byte* quants, int64_t value) {
  const int high = std::to_integer<int>(bits[value / 8]) >> (value % 8) & 1;
  return nibble(quants, value) | high << 4;
}

float unpack_value(WeightType type, const std::byte* block, int64_t value) {
  const float scale = half_at(block);
  switch (type) {
    case WeightType::kQ4_1:
      return scale * static_cast<float>(nibble(block + 4, value)) + half_at(block + 2);
    case WeightType::kQ5_0:
      return scale * static_cast<float>(five_bits(block + 2, block + 6, value) - 16);
    case WeightType::kQ5_1:
      return scale * static_cast<float>(five_bits(block + 4, block + 8, value)) +
             half_at(block + 2);
    default:
      return scale * static_cast<float>(std::to_integer<int8_t>(block[2 + value]));
  }
}

}  // namespace

void unpack_weights(WeightType type, const std::byte* block, float* out) {
  for (int64_t value = 0; value < kBlockValues; ++value) {
    out[value] = unpack_value(type, block, value);
  }
}

}  // namespace ctxzip
