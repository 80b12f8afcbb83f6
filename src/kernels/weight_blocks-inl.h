// Blocks of 32 weights unpacked into registers. Compiled once per Highway target.
#if defined(CTXZIP_KERNELS_WEIGHT_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_WEIGHT_BLOCKS_INL_H_
#undef CTXZIP_KERNELS_WEIGHT_BLOCKS_INL_H_
#else
#define CTXZIP_KERNELS_WEIGHT_BLOCKS_INL_H_
#endif

#include <cstddef>
#include <cstring>

#include "kernels/attention_math-inl.h"
#include "kernels/weight_blocks.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

using IntTag = hn::Rebind<int32_t, FloatTag>;
constexpr int64_t kBlockVectors = kBlockValues / lanes_of<FloatTag>();
// In order.
using WeightBlock = hn::Vec<FloatTag>[kBlockVectors];
using BlockBits = hn::Vec<IntTag>[kBlockVectors];

HWY_INLINE const uint8_t* bytes_of(const std::byte* at) {
  return reinterpret_cast<const uint8_t*>(at);
}

HWY_INLINE hn::Vec<IntTag> load_bytes(const std::byte* at) {
  const IntTag d;
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, IntTag>(), bytes_of(at)));
}

HWY_INLINE float load_half(const std::byte* at) {
  const hn::CappedTag<float, 4> d;
  uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  const auto halves = hn::Set(hn::Rebind<uint16_t, decltype(d)>(), bits);
  return hn::GetLane(
      hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, decltype(d)>(), halves)));
}

// Sixteen bytes: their low halves, then their high ones.
HWY_INLINE void load_nibbles(const std::byte* at, BlockBits& bits) {
  const auto mask = hn::Set(IntTag(), 15);
  for (int64_t vector = 0; vector < kBlockVectors / 2; ++vector) {
    const auto both = load_bytes(at + vector * lanes_of<IntTag>());
    bits[vector] = hn::And(both, mask);
    bits[vector + kBlockVectors / 2] = hn::ShiftRight<4>(both);
  }
}

// Bit i of four bytes becomes bit 4 of value i.
HWY_INLINE void add_fifth_bits(const std::byte* at, BlockBits& bits) {
  const IntTag d;
  const hn::RebindToUnsigned<IntTag> du;
  uint32_t all;
  std::memcpy(&all, at, sizeof(all));
  for (int64_t vector = 0; vector < kBlockVectors; ++vector) {
    const auto place = hn::Iota(du, static_cast<uint32_t>(vector * lanes_of<IntTag>()));
    const auto bit = hn::And(hn::Shr(hn::Set(du, all), place), hn::Set(du, 1));
    bits[vector] = hn::Or(bits[vector], hn::BitCast(d, hn::ShiftLeft<4>(bit)));
  }
}

// out = scale * bits + add.
HWY_INLINE void scale_bits(const BlockBits& bits, float scale, float add, WeightBlock& out) {
  const FloatTag d;
  for (int64_t vector = 0; vector < kBlockVectors; ++vector) {
    out[vector] = hn::MulAdd(hn::ConvertTo(d, bits[vector]), hn::Set(d, scale), hn::Set(d, add));
  }
}

template <WeightType kType>
HWY_INLINE void unpack_block(const std::byte* block, WeightBlock& out) {
  const FloatTag d;
  const float scale = load_half(block);
  BlockBits bits;
  if constexpr (kType == WeightType::kQ4_1) {
    load_nibbles(block + 4, bits);
    scale_bits(bits, scale, load_half(block + 2), out);
  } else if constexpr (kType == WeightType::kQ5_0) {
    load_nibbles(block + 6, bits);
    add_fifth_bits(block + 2, bits);
    scale_bits(bits, scale, -16 * scale, out);
  } else if constexpr (kType == WeightType::kQ5_1) {
    load_nibbles(block + 8, bits);
    add_fifth_bits(block + 4, bits);
    scale_bits(bits, scale, load_half(block + 2), out);
  } else {
    const hn::Rebind<int8_t, IntTag> d8;
    const auto* values = reinterpret_cast<const int8_t*>(block + 2);
    for (int64_t vector = 0; vector < kBlockVectors; ++vector) {
      const auto value = hn::LoadU(d8, values + vector * lanes_of<IntTag>());
      out[vector] = hn::Mul(hn::ConvertTo(d, hn::PromoteTo(IntTag(), value)), hn::Set(d, scale));
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
