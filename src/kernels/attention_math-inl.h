// Vector helpers of the attention kernels, compiled once per Highway target.
#if defined(CTXZIP_KERNELS_ATTENTION_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_ATTENTION_MATH_INL_H_
#undef CTXZIP_KERNELS_ATTENTION_MATH_INL_H_
#else
#define CTXZIP_KERNELS_ATTENTION_MATH_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/attention.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
// A head dimension is a multiple of this many lanes on every target.
using NarrowTag = hn::CappedTag<float, 8>;

template <class D>
constexpr int64_t lanes_of() {
  return static_cast<int64_t>(hn::MaxLanes(D()));
}

// Heads that decode takes at once.
constexpr int kMaxHeads = 8;
constexpr bool kManyRegisters = HWY_TARGET == HWY_AVX3;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

template <class D>
HWY_INLINE hn::Vec<D> load_row(D d, const float* row) {
  return hn::LoadU(d, row);
}

template <class D>
HWY_INLINE hn::Vec<D> load_row(D d, const uint16_t* row) {
  const hn::Rebind<hwy::float16_t, D> dh;
  return hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(row)));
}

// Stops GCC from loading the vector again for each use, which would take the second load port.
template <class V>
HWY_INLINE void keep_in_register(V& vector) {
#if HWY_COMPILER_GCC_ACTUAL && HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(vector.raw));
#else
  (void)vector;
#endif
}

// exp(x) for x <= 0 within 2 ulp; 0 below -87.3, where the result would be subnormal.
template <class D>
HWY_INLINE hn::Vec<D> exp_non_positive(D d, hn::Vec<D> x) {
  const hn::Rebind<int32_t, D> di;
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low mantissa bits.
  const auto magic = hn::Set(d, 12582912.0f);
  const auto biased = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const auto n = hn::Sub(biased, magic);
  // ln 2 in two parts; the product with the first is exact.
  auto r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  // Minimax polynomial of degree 6 on +-ln(2)/2 with the first two coefficients 1.
  auto poly = hn::Set(d, 0x1.6b7338p-10f);
  for (const float coefficient :
       {0x1.12278ep-7f, 0x1.555716p-5f, 0x1.5554b0p-3f, 0x1.fffffep-2f, 1.0f, 1.0f}) {
    poly = hn::MulAdd(poly, r, hn::Set(d, coefficient));
  }
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(di, biased));
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, poly), exponent));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.3f)), scaled);
}

HWY_INLINE float exp_non_positive(float x) {
  const FloatTag d;
  return hn::GetLane(exp_non_positive(d, hn::Set(d, x)));
}

// Writes -inf to scores [n, next multiple of the lanes) and returns that multiple.
HWY_INLINE int64_t pad_scores(float* scores, int64_t n) {
  constexpr int64_t kLanes = lanes_of<FloatTag>();
  const int64_t padded = (n + kLanes - 1) / kLanes * kLanes;
  for (int64_t at = n; at < padded; ++at) scores[at] = kMinusInfinity;
  return padded;
}

// Largest of n scores and `floor`; n is a multiple of the lanes.
HWY_INLINE float max_of(const float* scores, int64_t n, float floor) {
  const FloatTag d;
  auto best = hn::Set(d, floor);
  for (int64_t at = 0; at < n; at += lanes_of<FloatTag>()) {
    best = hn::Max(best, hn::LoadU(d, scores + at));
  }
  return hn::GetLane(hn::MaxOfLanes(d, best));
}

// scores = exp(scores - max), returns their sum; n is a multiple of the lanes.
HWY_INLINE float exponentiate(float* scores, int64_t n, float max) {
  const FloatTag d;
  // Rows whose scores are all -inf have no finite maximum to subtract.
  const auto shift = hn::Set(d, HWY_MAX(max, std::numeric_limits<float>::lowest()));
  auto sum = hn::Zero(d);
  for (int64_t at = 0; at < n; at += lanes_of<FloatTag>()) {
    const auto weight = exp_non_positive(d, hn::Sub(hn::LoadU(d, scores + at), shift));
    hn::StoreU(weight, d, scores + at);
    sum = hn::Add(sum, weight);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

#if HWY_TARGET != HWY_SCALAR
// Adds the 128-bit blocks of a vector.
template <class D>
HWY_INLINE hn::Vec<hn::FixedTag<float, 4>> add_blocks(D d, hn::Vec<D> v) {
  if constexpr (lanes_of<D>() > 4) {
    const hn::Half<D> dh;
    return add_blocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  } else {
    (void)d;
    return v;
  }
}
#endif

// Stores the sums of the lanes of four vectors, two to `first` and two to `second`.
template <class D>
HWY_INLINE void store_four_sums(D d, hn::Vec<D> a, hn::Vec<D> b, hn::Vec<D> c, hn::Vec<D> e,
                                float* first, float* second) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  first[0] = hn::GetLane(a);
  first[1] = hn::GetLane(b);
  second[0] = hn::GetLane(c);
  second[1] = hn::GetLane(e);
#else
  const hn::Repartition<double, D> d64;
  const auto ab =
      hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce =
      hn::BitCast(d64, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  const auto low = hn::BitCast(d, hn::InterleaveLower(d64, ab, ce));
  const auto high = hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce));
  const auto sums = add_blocks(d, hn::Add(low, high));
  if (second == first + 2) {
    hn::StoreU(sums, hn::FixedTag<float, 4>(), first);
  } else {
    const hn::FixedTag<float, 2> d2;
    hn::StoreU(hn::LowerHalf(d2, sums), d2, first);
    hn::StoreU(hn::UpperHalf(d2, sums), d2, second);
  }
#endif
}

// out[dim * out_stride + row] = rows[row][dim] for four rows and four dimensions.
template <class T>
HWY_INLINE void transpose_four(const T* const* rows, int64_t dim, float* out, int64_t out_stride) {
#if HWY_TARGET == HWY_SCALAR
  const FloatTag d;
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t at = 0; at < 4; ++at) {
      out[at * out_stride + row] = hn::GetLane(load_row(d, rows[row] + dim + at));
    }
  }
#else
  const hn::FixedTag<float, 4> d;
  const auto a = load_row(d, rows[0] + dim);
  const auto b = load_row(d, rows[1] + dim);
  const auto c = load_row(d, rows[2] + dim);
  const auto e = load_row(d, rows[3] + dim);
  const auto ac_low = hn::InterleaveLower(d, a, c);
  const auto ac_high = hn::InterleaveUpper(d, a, c);
  const auto be_low = hn::InterleaveLower(d, b, e);
  const auto be_high = hn::InterleaveUpper(d, b, e);
  hn::StoreU(hn::InterleaveLower(d, ac_low, be_low), d, out);
  hn::StoreU(hn::InterleaveUpper(d, ac_low, be_low), d, out + out_stride);
  hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, out + 2 * out_stride);
  hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, out + 3 * out_stride);
#endif
}

// Pointers to rows [begin, begin + n) of a segment; repeats the last one up to n_padded.
template <class T>
HWY_INLINE void list_rows(const void* stored, const uint32_t* index, int64_t head_dim,
                          int64_t begin, int64_t n, int64_t n_padded, const T** rows) {
  const T* base = static_cast<const T*>(stored);
  if (index) {
    for (int64_t at = 0; at < n; ++at) rows[at] = base + int64_t{index[begin + at]} * head_dim;
  } else {
    for (int64_t at = 0; at < n; ++at) rows[at] = base + (begin + at) * head_dim;
  }
  for (int64_t at = n; at < n_padded; ++at) rows[at] = rows[n - 1];
}

// Asks for every cache line of a row.
template <class T>
HWY_INLINE void prefetch_row(const T* row, int64_t head_dim) {
  constexpr int64_t kLine = 64 / sizeof(T);
  for (int64_t dim = 0; dim < head_dim; dim += kLine) hwy::Prefetch(row + dim);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
