// Arithmetic on the codes of quantised rows (kernels/quantised_layout.h), compiled once per Highway
// target. Lanes of 32 bits each hold the four codes of a quad, or those of two quads in q4.
#if defined(CTXZIP_KERNELS_ATTENTION_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_ATTENTION_CODES_INL_H_
#undef CTXZIP_KERNELS_ATTENTION_CODES_INL_H_
#else
#define CTXZIP_KERNELS_ATTENTION_CODES_INL_H_
#endif

#include <cstring>
#include <limits>

#include "kernels/attention_math-inl.h"
#include "kernels/quantised_layout.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

// Eight successive numbers in the direction of the quads, of every lane: where they start, and the
// distance to the second quad (q8) and to the next octet.
template <int kBits>
struct Octets {
  const uint8_t* codes;
  int64_t quad_bytes;

  int64_t step() const { return kBits == 8 ? 2 * quad_bytes : quad_bytes; }
  void advance() { codes += step(); }
};

// out[n] = code n of the octet as float, for each lane.
template <int kBits, class D>
HWY_INLINE void load_octet(D d, const Octets<kBits>& octets, hn::Vec<D> (&out)[8]) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const auto load = [&](int64_t offset) HWY_ATTR {
    return hn::LoadU(du, reinterpret_cast<const uint32_t*>(octets.codes + offset));
  };
  const hn::Vec<decltype(du)> quads[2] = {load(0), kBits == 8 ? load(octets.quad_bytes) : load(0)};
  const auto mask = hn::Set(du, kBits == 8 ? 255u : 15u);
  for (int at = 0; at < 8; ++at) {
    const int shift = 8 * (at % 4) + (kBits == 4 && at >= 4 ? 4 : 0);
    const auto code = hn::And(hn::ShiftRightSame(quads[at / 4], shift), mask);
    out[at] = hn::ConvertTo(d, hn::BitCast(di, code));
  }
}

#if HWY_TARGET != HWY_SCALAR

template <class D>
using Vec16 = hn::Vec<hn::Repartition<int16_t, D>>;

// acc plus, in each 32-bit lane, the sum of the products of its two 16-bit numbers.
template <class D>
HWY_INLINE hn::Vec<D> add_pair_products(D d, Vec16<D> a, Vec16<D> b, hn::Vec<D> acc) {
#if HWY_ARCH_X86
  auto unused = acc;
  return hn::ReorderWidenMulAccumulate(d, a, b, acc, unused);
#else
  const auto a32 = hn::BitCast(d, a);
  const auto b32 = hn::BitCast(d, b);
  const auto low = [](auto v) HWY_ATTR { return hn::ShiftRight<16>(hn::ShiftLeft<16>(v)); };
  acc = hn::Add(acc, hn::Mul(low(a32), low(b32)));
  return hn::Add(acc, hn::Mul(hn::ShiftRight<16>(a32), hn::ShiftRight<16>(b32)));
#endif
}

// The sum of the products of the two bytes in each 16-bit lane, codes unsigned and factors signed.
// Highway has no operation for it.
#if HWY_TARGET == HWY_AVX3
HWY_INLINE hn::Vec512<int16_t> byte_pair_products(hn::Vec512<uint8_t> codes,
                                                  hn::Vec512<int8_t> factors) {
  return hn::Vec512<int16_t>{_mm512_maddubs_epi16(codes.raw, factors.raw)};
}
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
HWY_INLINE hn::Vec256<int16_t> byte_pair_products(hn::Vec256<uint8_t> codes,
                                                  hn::Vec256<int8_t> factors) {
  return hn::Vec256<int16_t>{_mm256_maddubs_epi16(codes.raw, factors.raw)};
}
#elif HWY_TARGET == HWY_SSE4
HWY_INLINE hn::Vec128<int16_t> byte_pair_products(hn::Vec128<uint8_t> codes,
                                                  hn::Vec128<int8_t> factors) {
  return hn::Vec128<int16_t>{_mm_maddubs_epi16(codes.raw, factors.raw)};
}
#else
template <class Codes, class Factors>
HWY_INLINE auto byte_pair_products(Codes codes, Factors factors) {
  const hn::Repartition<int16_t, hn::DFromV<Codes>> d16;
  const auto codes16 = hn::BitCast(d16, codes);
  const auto factors16 = hn::BitCast(d16, factors);
  const auto low_code = hn::And(codes16, hn::Set(d16, 255));
  const auto high_code = hn::BitCast(
      d16, hn::ShiftRight<8>(hn::BitCast(hn::RebindToUnsigned<decltype(d16)>(), codes)));
  const auto low = hn::Mul(low_code, hn::ShiftRight<8>(hn::ShiftLeft<8>(factors16)));
  return hn::Add(low, hn::Mul(high_code, hn::ShiftRight<8>(factors16)));
}
#endif

// Every 32-bit lane the four bytes at `factors`.
template <class To, class D>
HWY_INLINE hn::Vec<To> repeat_four_bytes(To to, D d, const void* factors) {
  int32_t bytes;
  std::memcpy(&bytes, factors, sizeof(bytes));
  return hn::BitCast(to, hn::Set(d, bytes));
}

// Codes of one octet of each lane as 16-bit numbers: 0 and 2, 1 and 3, 4 and 6, 5 and 7.
template <int kBits, class D>
HWY_INLINE void load_octet_pairs(D, const Octets<kBits>& octets, Vec16<D> (&out)[4]) {
  const hn::Repartition<uint16_t, D> du;
  const hn::Repartition<int16_t, D> di;
  const auto load = [&](int64_t offset) HWY_ATTR {
    return hn::LoadU(du, reinterpret_cast<const uint16_t*>(octets.codes + offset));
  };
  const auto first = load(0);
  const auto mask = hn::Set(du, static_cast<uint16_t>(kBits == 8 ? 255 : 15));
  out[0] = hn::BitCast(di, hn::And(first, mask));
  if constexpr (kBits == 8) {
    const auto second = load(octets.quad_bytes);
    out[1] = hn::BitCast(di, hn::ShiftRight<8>(first));
    out[2] = hn::BitCast(di, hn::And(second, mask));
    out[3] = hn::BitCast(di, hn::ShiftRight<8>(second));
  } else {
    out[1] = hn::BitCast(di, hn::And(hn::ShiftRight<8>(first), mask));
    out[2] = hn::BitCast(di, hn::And(hn::ShiftRight<4>(first), mask));
    out[3] = hn::BitCast(di, hn::ShiftRight<12>(first));
  }
}

// acc[head], in each lane, += sum over n octets of code * factor; up to 256 products of 255 and
// 32767 fit in 32 bits. Factors are (head, octet, 8) in the order of store_factors, heads kStride
// apart.
template <int kHeads, int kStride, class D, int kBits>
HWY_INLINE void add_octets(D d, Octets<kBits> octets, int64_t n, const int16_t* factors,
                           hn::Vec<D> (&acc)[kHeads]) {
  const hn::Repartition<int16_t, D> d16;
  for (int64_t octet = 0; octet < n; ++octet, octets.advance(), factors += 8) {
    Vec16<D> codes[4];
    load_octet_pairs(d, octets, codes);
    for (int head = 0; head < kHeads; ++head) {
      const int16_t* of_head = factors + head * kStride;
      for (int pair = 0; pair < 4; ++pair) {
        acc[head] = add_pair_products(d, codes[pair], repeat_four_bytes(d16, d, of_head + 2 * pair),
                                      acc[head]);
      }
    }
  }
}

template <class Codes>
HWY_INLINE auto products_of_codes(Codes codes,
                                  hn::Vec<hn::RebindToSigned<hn::DFromV<Codes>>> factors) {
  return byte_pair_products(codes, factors);
}
// Codes below 128 may take the signed side.
template <class Codes>
HWY_INLINE auto products_of_codes(Codes codes, Codes factors) {
  return byte_pair_products(factors, hn::BitCast(hn::RebindToSigned<hn::DFromV<Codes>>(), codes));
}

// Four-bit codes of kOctets octets times 8-bit factors; their sums of up to eight products of 15
// and 255 stay within 16 bits.
template <int kHeads, int kStride, int kOctets, class D, class Factor>
HWY_INLINE void add_byte_octets(D d, Octets<4>& octets, const Factor* factors,
                                hn::Vec<D> (&acc)[kHeads]) {
  static_assert(kOctets <= 2);
  const hn::Repartition<uint8_t, D> du;
  const hn::Repartition<Factor, D> d8;
  const hn::Repartition<int16_t, D> d16;
  const hn::Repartition<uint16_t, D> du16;
  const auto mask = hn::Set(du, uint8_t{15});
  hn::Vec<decltype(du)> codes[2 * kOctets];
  for (int octet = 0; octet < kOctets; ++octet, octets.advance()) {
    const auto both = hn::LoadU(du, octets.codes);
    codes[2 * octet] = hn::And(both, mask);
    codes[2 * octet + 1] =
        hn::And(hn::BitCast(du, hn::ShiftRight<4>(hn::BitCast(du16, both))), mask);
  }
  const auto ones = hn::Set(d16, 1);
  for (int head = 0; head < kHeads; ++head) {
    const Factor* of_head = factors + head * kStride;
    auto sum = products_of_codes(codes[0], repeat_four_bytes(d8, d, of_head));
    for (int quad = 1; quad < 2 * kOctets; ++quad) {
      sum = hn::Add(sum,
                    products_of_codes(codes[quad], repeat_four_bytes(d8, d, of_head + 4 * quad)));
    }
    acc[head] = add_pair_products(d, sum, ones, acc[head]);
  }
}

// As above, with factors of 8 bits.
template <int kHeads, int kStride, class D, class Factor>
HWY_INLINE void add_octets(D d, Octets<4> octets, int64_t n, const Factor* factors,
                           hn::Vec<D> (&acc)[kHeads]) {
  for (; n >= 2; n -= 2, factors += 16) {
    add_byte_octets<kHeads, kStride, 2>(d, octets, factors, acc);
  }
  if (n > 0) add_byte_octets<kHeads, kStride, 1>(d, octets, factors, acc);
}

// Adding 1.5 * 2^23 rounds a float to an integer and leaves it in the low mantissa bits.
constexpr float kRoundingBias = 12582912.0f;
constexpr int32_t kRoundingBiasBits = 0x4b400000;

// Store the integers of biased floats in the order that add_octets takes factors: each quad's 0, 2,
// 1, 3 for the 16-bit pairs, unchanged for bytes.
template <class D>
HWY_INLINE void store_factors(D d, hn::Vec<D> biased, int16_t* out) {
  const hn::RebindToSigned<D> d32;
  const hn::Rebind<int16_t, D> d16;
  const hn::Repartition<uint8_t, decltype(d16)> du8;
  alignas(16) static constexpr uint8_t kOrder[16] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                     8, 9, 12, 13, 10, 11, 14, 15};
  const auto integers = hn::Sub(hn::BitCast(d32, biased), hn::Set(d32, kRoundingBiasBits));
  const auto order = hn::BitCast(d16, hn::Load(du8, kOrder));
  hn::StoreU(hn::TableLookupBytes(hn::DemoteTo(d16, integers), order), d16, out);
}

template <class D>
HWY_INLINE void store_factors(D d, hn::Vec<D> biased, uint8_t* out) {
  (void)d;
  const hn::RebindToUnsigned<D> d32;
  hn::StoreU(hn::U8FromU32(hn::BitCast(d32, biased)), hn::Rebind<uint8_t, D>(), out);
}

template <class D>
HWY_INLINE void store_factors(D d, hn::Vec<D> biased, int8_t* out) {
  store_factors(d, biased, reinterpret_cast<uint8_t*>(out));
}

// Rounding thresholds less one half, spread evenly over any run of rows: many weights below half a
// step that plain rounding would lose keep their sum.
struct Dither {
  static constexpr int kRows = 64;  // then they repeat
  alignas(64) float at[kRows];
  constexpr Dither() : at() {
    for (int row = 0; row < kRows; ++row) {
      int reversed = 0;
      for (int bit = 1; bit < kRows; bit *= 2) reversed = 2 * reversed + (row & bit ? 1 : 0);
      at[row] = (static_cast<float>(reversed) + 0.5f) / kRows - 0.5f;
    }
  }
};

// Numbers with the scales folded in, about to be rounded.
struct Scaled {
  float largest;  // magnitude
  float offset;   // sum of number * middle
};

// scaled[at] = number(at) * scale[at] for n numbers, a multiple of 8; number(at) is the vector from
// `at` on. `middle` is min + scale * middle_code.
template <class D, class Number>
HWY_INLINE Scaled scale_numbers(D d, int64_t n, Number number, const float* scale,
                                const float* middle, float* scaled) {
  auto largest = hn::Zero(d);
  auto offset = hn::Zero(d);
  for (int64_t at = 0; at < n; at += lanes_of<D>()) {
    const auto value = number(at);
    const auto product = hn::Mul(value, hn::Load(d, scale + at));
    hn::Store(product, d, scaled + at);
    largest = hn::Max(largest, hn::Abs(product));
    offset = hn::MulAdd(value, hn::Load(d, middle + at), offset);
  }
  return {hn::GetLane(hn::MaxOfLanes(d, largest)), hn::GetLane(hn::SumOfLanes(d, offset))};
}

// sum of number * (scale * code + min) = step * sum of factor * code + offset, nearly.
struct Folded {
  float step;
  float offset;
};

// Rounds n scaled numbers to factors, the largest magnitude to the largest factor. As the offset
// takes codes relative to their middle, what rounding loses is multiplied by half the code range at
// most and has no constant part.
template <bool kDithered, class Factor>
HWY_INLINE Folded round_factors(const float* numbers, int64_t n, const Scaled& scaled,
                                float middle_code, Factor* factors) {
  constexpr auto kMaxFactor = static_cast<float>(std::numeric_limits<Factor>::max());
  static constexpr Dither kDither;
  const NarrowTag d;
  const hn::RebindToSigned<NarrowTag> di;
  const auto bias = hn::Set(d, kRoundingBias);
  const auto inverse = hn::Set(d, scaled.largest > 0 ? kMaxFactor / scaled.largest : 0.0f);
  auto sum = hn::Zero(di);
  for (int64_t at = 0; at < n; at += lanes_of<NarrowTag>()) {
    auto biased = hn::Load(d, numbers + at);
    if constexpr (kDithered) {
      const auto dither = hn::Load(d, kDither.at + at % Dither::kRows);
      biased = hn::Add(hn::MulAdd(biased, inverse, dither), bias);
    } else {
      biased = hn::MulAdd(biased, inverse, bias);
    }
    sum = hn::Add(sum, hn::Sub(hn::BitCast(di, biased), hn::BitCast(di, bias)));
    store_factors(d, biased, factors + at);
  }
  const float step = scaled.largest / kMaxFactor;
  const auto rounded_sum = static_cast<float>(hn::GetLane(hn::SumOfLanes(di, sum)));
  return {step, scaled.offset - step * middle_code * rounded_sum};
}

#endif  // HWY_TARGET != HWY_SCALAR

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
