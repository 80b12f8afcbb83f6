// Float32 products with weights unpacked into panels. Compiled once per Highway target.
#if defined(CTXZIP_KERNELS_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_MATMUL_INL_H_
#undef CTXZIP_KERNELS_MATMUL_INL_H_
#else
#define CTXZIP_KERNELS_MATMUL_INL_H_
#endif

#include <algorithm>

#include "kernels/matmul.h"
#include "kernels/panel_product-inl.h"
#include "kernels/weight_blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

// Columns taken at once of 32 unpacked rows.
constexpr int64_t kDepth = 256;
// Floats of a few activation rows that stay in the L1 cache.
constexpr int64_t kFewFloats = 8192;
// Weight rows that are asked for ahead of use: a product with few tokens waits for memory.
constexpr int64_t kRowsAhead = 4;
// From here on weights are laid out in panels, which costs a pass over them.
constexpr int64_t kPanelTokens = 32;
constexpr int kMostTokens = 8;

// Of the block that column `at` begins, from the row's start.
constexpr size_t block_offset(WeightType type, int64_t at) {
  return static_cast<size_t>(at / kBlockValues) * weight_block_bytes(type);
}

// Columns [begin, begin + n) of a row, whole blocks.
template <WeightType kType>
HWY_INLINE void unpack_row(const std::byte* row, int64_t begin, int64_t n, float* out) {
  const FloatTag d;
  for (int64_t at = begin; at < begin + n; at += kBlockValues) {
    WeightBlock block;
    unpack_block<kType>(row + block_offset(kType, at), block);
    for (const auto& vector : block) {
      hn::StoreU(vector, d, out);
      out += lanes_of<FloatTag>();
    }
  }
}

// Weights [first, first + kMatmulRows) x [begin, begin + n) as (column panel, n, kPanelCols); rows
// beyond the matrix are zeros.
template <WeightType kType>
HWY_NOINLINE void pack_weights(const WeightMatrix& weights, int64_t first, int64_t begin, int64_t n,
                               float* packed) {
  constexpr int64_t kRows = 4;  // of a transposed square
  HWY_ALIGN float values[kRows][kDepth];
  const float* rows[kRows] = {values[0], values[1], values[2], values[3]};
  for (int64_t row = 0; row < kMatmulRows; row += kRows) {
    for (int64_t at = 0; at < kRows; ++at) {
      const int64_t out = first + row + at;
      if (out < weights.n_out) {
        unpack_row<kType>(weights.data + static_cast<size_t>(out) * weights.row_bytes, begin, n,
                          values[at]);
      } else {
        std::fill_n(values[at], n, 0.0f);
      }
    }
    for (int64_t within = 0; within < kRows;) {
      // Panels may be narrower than a square.
      const int64_t wide = std::min(kRows, kPanelCols);
      float* to =
          packed + (row + within) / kPanelCols * n * kPanelCols + (row + within) % kPanelCols;
      if (wide == kRows) {
        for (int64_t at = 0; at < n; at += kRows) {
          transpose_four(rows, at, to + at * kPanelCols, kPanelCols);
        }
      } else {
        for (int64_t at = 0; at < n; ++at) {
          for (int64_t col = 0; col < wide; ++col) {
            to[at * kPanelCols + col] = values[within + col][at];
          }
        }
      }
      within += wide;
    }
  }
}

// Adds rows [skip, kPanelQueries) of the accumulators to y, or sets y to them.
HWY_INLINE void store_panel(const TileAccumulators& acc, int64_t skip, int64_t n_cols, bool set,
                            float* y, int64_t y_stride) {
  const FloatTag d;
  HWY_ALIGN float row[kPanelCols];
  for (int64_t m = skip; m < kPanelQueries; ++m) {
    float* to = y + m * y_stride;
    if (n_cols == kPanelCols) {
      const auto low = set ? acc[m][0] : hn::Add(hn::LoadU(d, to), acc[m][0]);
      const auto high = set ? acc[m][1] : hn::Add(hn::LoadU(d, to + kPanelCols / 2), acc[m][1]);
      hn::StoreU(low, d, to);
      hn::StoreU(high, d, to + kPanelCols / 2);
      continue;
    }
    hn::Store(acc[m][0], d, row);
    hn::Store(acc[m][1], d, row + kPanelCols / 2);
    for (int64_t col = 0; col < n_cols; ++col) to[col] = set ? row[col] : to[col] + row[col];
  }
}

template <WeightType kType>
void multiply_many(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
                   int64_t n_tokens, float* y, int64_t y_stride) {
  const FloatTag d;
  HWY_ALIGN float packed[kMatmulRows * kDepth];
  const int64_t n_cols = std::min(kMatmulRows, weights.n_out - first);
  for (int64_t begin = 0; begin < weights.n_in; begin += kDepth) {
    const int64_t n = std::min(kDepth, weights.n_in - begin);
    pack_weights<kType>(weights, first, begin, n, packed);
    for (int64_t token = 0; token < n_tokens; token += kPanelQueries) {
      // The last panel starts early enough to be full; rows that it repeats are not stored again.
      const int64_t start = std::min(token, n_tokens - kPanelQueries);
      for (int64_t col = 0; col < n_cols; col += kPanelCols) {
        TileAccumulators acc;
        for (int64_t m = 0; m < kPanelQueries; ++m) acc[m][0] = acc[m][1] = hn::Zero(d);
        multiply_panels(x + start * x_stride + begin, 1, x_stride, packed + col * n, n, acc);
        store_panel(acc, token - start, std::min(kPanelCols, n_cols - col), begin == 0,
                    y + start * y_stride + first + col, y_stride);
      }
    }
  }
}

// Two multiply-adds a cycle, each four cycles long: eight sums at a time.
template <int kTokens>
constexpr int64_t kSums = HWY_MAX(1, HWY_MIN(kBlockVectors, 8 / kTokens));
template <int kTokens>
using TokenSums = hn::Vec<FloatTag>[kTokens][kSums<kTokens>];

// One weight row, columns [begin, begin + n), times kTokens activation rows; y (kTokens, y_stride)
// is added to, or set. The row `ahead` bytes on is asked for.
template <WeightType kType, int kTokens>
HWY_INLINE void multiply_row(const std::byte* row, size_t ahead, int64_t begin, int64_t n,
                             const float* x, int64_t x_stride, float* y, int64_t y_stride) {
  const FloatTag d;
  TokenSums<kTokens> sums;
  for (auto& token : sums) {
    for (auto& sum : token) sum = hn::Zero(d);
  }
  for (int64_t at = begin; at < begin + n; at += kBlockValues) {
    const std::byte* stored = row + block_offset(kType, at);
    WeightBlock block;
    unpack_block<kType>(stored, block);
    hwy::Prefetch(stored + ahead);
    for (int64_t vector = 0; vector < kBlockVectors; ++vector) {
      for (int64_t token = 0; token < kTokens; ++token) {
        auto& sum = sums[token][vector % kSums<kTokens>];
        const float* from = x + token * x_stride + at + vector * lanes_of<FloatTag>();
        sum = hn::MulAdd(block[vector], hn::LoadU(d, from), sum);
      }
    }
  }
  for (int64_t token = 0; token < kTokens; ++token) {
    auto sum = sums[token][0];
    for (int64_t part = 1; part < kSums<kTokens>; ++part) sum = hn::Add(sum, sums[token][part]);
    const float value = hn::GetLane(hn::SumOfLanes(d, sum));
    float& out = y[token * y_stride];
    out = begin == 0 ? value : out + value;
  }
}

template <WeightType kType, int kTokens>
HWY_NOINLINE void multiply_tile(const WeightMatrix& weights, int64_t first, const float* x,
                                int64_t x_stride, float* y, int64_t y_stride) {
  const int64_t last = std::min(weights.n_out, first + kMatmulRows);
  constexpr int64_t kFewDepth = kFewFloats / kTokens;
  for (int64_t begin = 0; begin < weights.n_in; begin += kFewDepth) {
    const int64_t n = std::min(kFewDepth, weights.n_in - begin);
    for (int64_t out = first; out < last; ++out) {
      const std::byte* row = weights.data + static_cast<size_t>(out) * weights.row_bytes;
      multiply_row<kType, kTokens>(row, kRowsAhead * weights.row_bytes, begin, n, x, x_stride,
                                   y + out, y_stride);
    }
  }
}

template <WeightType kType>
void multiply_few(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
                  int64_t n_tokens, float* y, int64_t y_stride) {
  for (int64_t token = 0; token < n_tokens;) {
    const int64_t left = n_tokens - token;
    const float* from = x + token * x_stride;
    float* to = y + token * y_stride;
    if (left >= kMostTokens) {
      multiply_tile<kType, kMostTokens>(weights, first, from, x_stride, to, y_stride);
      token += kMostTokens;
    } else if (left >= 4) {
      multiply_tile<kType, 4>(weights, first, from, x_stride, to, y_stride);
      token += 4;
    } else if (left >= 2) {
      multiply_tile<kType, 2>(weights, first, from, x_stride, to, y_stride);
      token += 2;
    } else {
      multiply_tile<kType, 1>(weights, first, from, x_stride, to, y_stride);
      token += 1;
    }
  }
}

template <WeightType kType>
void multiply_type(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
                   int64_t n_tokens, float* y, int64_t y_stride) {
  if (n_tokens >= kPanelTokens) {
    multiply_many<kType>(weights, first, x, x_stride, n_tokens, y, y_stride);
  } else {
    multiply_few<kType>(weights, first, x, x_stride, n_tokens, y, y_stride);
  }
}

void multiply(const WeightMatrix& weights, int64_t first, const float* x, int64_t x_stride,
              int64_t n_tokens, float* y, int64_t y_stride) noexcept {
  using Function =
      void (*)(const WeightMatrix&, int64_t, const float*, int64_t, int64_t, float*, int64_t);
  static constexpr Function kByType[kWeightTypes] = {
      multiply_type<WeightType::kQ4_1>, multiply_type<WeightType::kQ5_0>,
      multiply_type<WeightType::kQ5_1>, multiply_type<WeightType::kQ8_0>};
  kByType[static_cast<int>(weights.type)](weights, first, x, x_stride, n_tokens, y, y_stride);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
