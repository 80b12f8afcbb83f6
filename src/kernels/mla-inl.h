// Kernels of kernels/mla.h, compiled once per Highway target.
//
// Vectors are packed in tiles of up to kTileVectors registers: (tile, dim, lane of the tile). Both
// products of attention then have one shape: a few scalars, broadcast, times the registers of a
// tile. For scores the scalars are one dimension of a few rows, for values a few dimensions of one
// row.
#if defined(CTXZIP_KERNELS_MLA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_MLA_INL_H_
#undef CTXZIP_KERNELS_MLA_INL_H_
#else
#define CTXZIP_KERNELS_MLA_INL_H_
#endif

#include <algorithm>

#include "kernels/attention_math-inl.h"
#include "kernels/mla.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

constexpr int kTileVectors = 4;
constexpr int kMlaAccumulators = kManyRegisters ? 24 : 12;
constexpr int64_t kMlaLanesHere = lanes_of<FloatTag>();
// Rows are scored and added this many at a time.
constexpr int64_t kMlaChunk = 64;
// Dimensions whose queries stay in the first-level cache while a chunk is scored.
constexpr int64_t kScoreDims = 64;
constexpr int64_t kValueDims = 32;

template <int kVectors>
constexpr int64_t kTileLanes = kVectors* kMlaLanesHere;

// Calls fn with a constant number of vectors for each tile, and the tile's first lane.
template <class Fn>
HWY_INLINE void for_each_tile(int64_t n_vectors, const Fn& fn) {
  const int64_t padded = mla_padded(n_vectors);
  for (int64_t lane = 0; lane < padded; lane += kTileLanes<kTileVectors>) {
    switch (std::min<int64_t>(kTileVectors, (padded - lane) / kMlaLanesHere)) {
      case 4:
        fn(std::integral_constant<int, 4>(), lane);
        break;
      case 3:
        fn(std::integral_constant<int, 3>(), lane);
        break;
      case 2:
        fn(std::integral_constant<int, 2>(), lane);
        break;
      default:
        fn(std::integral_constant<int, 1>(), lane);
    }
  }
}

inline void pack_vectors(const float* vectors, int64_t n, int64_t dim, int64_t stride, float scale,
                         float* packed) noexcept {
  for_each_tile(n, [&](auto tile_vectors, int64_t lane) {
    constexpr int64_t kLanes = kTileLanes<decltype(tile_vectors)::value>;
    float* to = packed + lane * dim;
    for (int64_t at = 0; at < kLanes; ++at) {
      const int64_t vector = lane + at;
      for (int64_t k = 0; k < dim; ++k) {
        to[k * kLanes + at] = vector < n ? vectors[vector * stride + k] * scale : 0.0f;
      }
    }
  });
}

// acc[a][.] += sum over k < n of left[a * kLeftA + k * kLeftK] * right[k][.].
template <int kN, int kVectors, int64_t kLeftA, int64_t kLeftK>
HWY_INLINE void multiply_tile(const float* HWY_RESTRICT left, const float* HWY_RESTRICT right,
                              int64_t n, hn::Vec<FloatTag> (&acc)[kN][kVectors]) {
  const FloatTag d;
  for (int64_t k = 0; k < n; ++k) {
    hn::Vec<FloatTag> scalar[kN];
    for (int a = 0; a < kN; ++a) scalar[a] = hn::Set(d, left[a * kLeftA + k * kLeftK]);
    for (int vector = 0; vector < kVectors; ++vector) {
      auto lanes = hn::Load(d, right + vector * kMlaLanesHere);
      keep_in_register(lanes);
      for (int a = 0; a < kN; ++a) acc[a][vector] = hn::MulAdd(lanes, scalar[a], acc[a][vector]);
    }
    right += kTileLanes<kVectors>;
  }
}

// Calls fn(constant count, first) for pieces that cover [0, n): as many as fit in registers, then
// fewer.
template <int kN, class Fn>
HWY_INLINE void for_each_piece(int64_t first, int64_t n, const Fn& fn) {
  // Four are better taken as two and two than as three and one, which waits for its sums.
  for (; n - first >= kN && !(kN == 3 && n - first == 4); first += kN) {
    fn(std::integral_constant<int, kN>(), first);
  }
  if constexpr (kN > 1) {
    if (first < n) for_each_piece<kN == 3 ? 2 : kN / 2>(first, n, fn);
  }
}

template <int kN>
HWY_INLINE void unpack_rows(const MlaRows& rows, int64_t row, int64_t dim, int64_t n_dims,
                            int64_t to_stride, float* to) {
  const NarrowTag d;
  for (int a = 0; a < kN; ++a) {
    const int64_t stored = rows.index ? int64_t{rows.index[row + a]} : row + a;
    const int64_t from = stored * rows.stride + dim;
    for (int64_t k = 0; k < n_dims; k += lanes_of<NarrowTag>()) {
      const auto values = rows.type == RowType::kF32
                              ? load_row(d, static_cast<const float*>(rows.data) + from + k)
                              : load_row(d, static_cast<const uint16_t*>(rows.data) + from + k);
      hn::StoreU(values, d, to + a * to_stride + k);
    }
  }
}

// Asks for one cache line of a row.
HWY_INLINE void prefetch_line(const MlaRows& rows, int64_t row, int64_t line) {
  constexpr int64_t kLineBytes = 64;
  const int64_t stored = rows.index ? int64_t{rows.index[row]} : row;
  const int64_t value_bytes = rows.type == RowType::kF32 ? 4 : 2;
  hwy::Prefetch(static_cast<const char*>(rows.data) + stored * rows.stride * value_bytes +
                line * kLineBytes);
}

// out (row, out_stride) = row.vector for the vectors of one tile and n rows from `begin`.
template <int kVectors>
HWY_INLINE void score_tile(const float* packed, int64_t dim, const MlaRows& rows, int64_t begin,
                           int64_t n, float* out, int64_t out_stride) {
  const FloatTag d;
  constexpr int kN = kMlaAccumulators / kVectors;
  alignas(64) float unpacked[kN * kScoreDims];
  for (int64_t first = 0; first < dim; first += kScoreDims) {
    const int64_t n_dims = std::min(kScoreDims, dim - first);
    const float* right = packed + first * kTileLanes<kVectors>;
    for_each_piece<kN>(0, n, [&](auto piece, int64_t row) HWY_ATTR {
      constexpr int kPiece = decltype(piece)::value;
      unpack_rows<kPiece>(rows, begin + row, first, n_dims, kScoreDims, unpacked);
      hn::Vec<FloatTag> acc[kPiece][kVectors];
      for (int a = 0; a < kPiece; ++a) {
        const float* from = out + (row + a) * out_stride;
        for (int vector = 0; vector < kVectors; ++vector) {
          acc[a][vector] = first == 0 ? hn::Zero(d) : hn::Load(d, from + vector * kMlaLanesHere);
        }
      }
      multiply_tile<kPiece, kVectors, kScoreDims, 1>(unpacked, right, n_dims, acc);
      for (int a = 0; a < kPiece; ++a) {
        float* to = out + (row + a) * out_stride;
        for (int vector = 0; vector < kVectors; ++vector) {
          hn::Store(acc[a][vector], d, to + vector * kMlaLanesHere);
        }
      }
    });
  }
}

inline void row_products(const PackedVectors& vectors, const MlaRows& rows, int64_t begin,
                         int64_t end, float* out) noexcept {
  const int64_t padded = mla_padded(vectors.n);
  alignas(64) float scores[kMlaChunk * kTileLanes<kTileVectors>];
  for_each_tile(vectors.n, [&](auto tile_vectors, int64_t lane) HWY_ATTR {
    constexpr int kVectors = decltype(tile_vectors)::value;
    for (int64_t row = begin; row < end; row += kMlaChunk) {
      const int64_t n = std::min(kMlaChunk, end - row);
      score_tile<kVectors>(vectors.data + lane * vectors.dim, vectors.dim, rows, row, n, scores,
                           kTileLanes<kVectors>);
      for (int64_t at = 0; at < n; ++at) {
        std::copy_n(scores + at * kTileLanes<kVectors>, kTileLanes<kVectors>,
                    out + (row - begin + at) * padded + lane);
      }
    }
  });
}

// One tile's columns of a partial; rows are `stride` floats apart.
struct PartialTile {
  float* out;
  float* stats;
  int64_t stride;
  int64_t latent;
};

// Turns the scores (row, lanes of the tile) of n rows into weights relative to the running maximum.
template <int kVectors>
HWY_INLINE void softmax_tile(float* scores, int64_t n, const PartialTile& partial) {
  const FloatTag d;
  // Stands for -inf where a product with 0 must be 0.
  const auto far_below = hn::Set(d, -1e30f);
  bool unchanged = true;
  hn::Vec<FloatTag> factors[kVectors];
  for (int64_t vector = 0; vector < kVectors; ++vector) {
    float* column = scores + vector * kMlaLanesHere;
    float* stats = partial.stats + vector * kMlaLanesHere;
    const auto old_max = hn::LoadU(d, stats);
    auto max = old_max;
    for (int64_t row = 0; row < n; ++row) {
      max = hn::Max(max, hn::Load(d, column + row * kTileLanes<kVectors>));
    }
    // A head whose scores are all -inf has no finite maximum to subtract.
    const auto shift = hn::Max(max, hn::Set(d, std::numeric_limits<float>::lowest()));
    const auto moved = hn::Sub(old_max, shift);
    const auto factor = exp_non_positive(d, moved);
    const auto old_sum = hn::LoadU(d, stats + partial.stride);
    const auto old_weighted = hn::LoadU(d, stats + 2 * partial.stride);
    auto sum = hn::Mul(old_sum, factor);
    auto weighted = hn::Mul(factor, hn::MulAdd(hn::Max(moved, far_below), old_sum, old_weighted));
    for (int64_t row = 0; row < n; ++row) {
      float* at = column + row * kTileLanes<kVectors>;
      const auto below = hn::Sub(hn::Load(d, at), shift);
      const auto weight = exp_non_positive(d, below);
      hn::Store(weight, d, at);
      sum = hn::Add(sum, weight);
      weighted = hn::MulAdd(weight, hn::Max(below, far_below), weighted);
    }
    hn::StoreU(max, d, stats);
    hn::StoreU(sum, d, stats + partial.stride);
    hn::StoreU(weighted, d, stats + 2 * partial.stride);
    factors[vector] = factor;
    unchanged = unchanged && hn::AllTrue(d, hn::Eq(factor, hn::Set(d, 1.0f)));
  }
  if (unchanged) return;
  for (int64_t dim = 0; dim < partial.latent; ++dim) {
    for (int64_t vector = 0; vector < kVectors; ++vector) {
      float* at = partial.out + dim * partial.stride + vector * kMlaLanesHere;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), factors[vector]), d, at);
    }
  }
}

// Adds weight x value of n rows from `begin`. Meanwhile fetches the n_ahead rows behind them, which
// scoring would read in pieces that the processor does not foresee.
template <int kVectors>
HWY_INLINE void add_values_tile(const float* weights, const MlaRows& rows, int64_t begin, int64_t n,
                                int64_t n_ahead, int64_t row_dim, const PartialTile& partial) {
  const FloatTag d;
  constexpr int kN = kMlaAccumulators / kVectors;
  alignas(64) float values[kMlaChunk * kValueDims];
  const int64_t n_lines = (row_dim * (rows.type == RowType::kF32 ? 4 : 2) + 63) / 64;
  for (int64_t first = 0; first < partial.latent; first += kValueDims) {
    const int64_t n_dims = std::min(kValueDims, partial.latent - first);
    const int64_t first_line = n_lines * first / partial.latent;
    const int64_t last_line = n_lines * (first + n_dims) / partial.latent;
    for (int64_t row = 0; row < n; ++row) {
      unpack_rows<1>(rows, begin + row, first, n_dims, 0, values + row * kValueDims);
      if (row >= n_ahead) continue;
      for (int64_t line = first_line; line < last_line; ++line) {
        prefetch_line(rows, begin + n + row, line);
      }
    }
    for_each_piece<kN>(0, n_dims, [&](auto piece, int64_t dim) HWY_ATTR {
      constexpr int kPiece = decltype(piece)::value;
      float* out = partial.out + (first + dim) * partial.stride;
      hn::Vec<FloatTag> acc[kPiece][kVectors];
      for (int a = 0; a < kPiece; ++a) {
        for (int vector = 0; vector < kVectors; ++vector) {
          acc[a][vector] = hn::LoadU(d, out + a * partial.stride + vector * kMlaLanesHere);
        }
      }
      multiply_tile<kPiece, kVectors, 1, kValueDims>(values + dim, weights, n, acc);
      for (int a = 0; a < kPiece; ++a) {
        for (int vector = 0; vector < kVectors; ++vector) {
          hn::StoreU(acc[a][vector], d, out + a * partial.stride + vector * kMlaLanesHere);
        }
      }
    });
  }
}

inline void attend_shared(const MlaShape& shape, const PackedVectors& queries, const MlaRows& rows,
                          int64_t begin, int64_t end, float* partial) noexcept {
  const int64_t padded = mla_padded(shape.n_head);
  float* stats = partial + shape.latent * padded;
  std::fill_n(partial, partial_floats(shape), 0.0f);
  std::fill_n(stats, padded, kMinusInfinity);
  alignas(64) float weights[kMlaChunk * kTileLanes<kTileVectors>];
  for_each_tile(shape.n_head, [&](auto tile_vectors, int64_t lane) HWY_ATTR {
    constexpr int kVectors = decltype(tile_vectors)::value;
    const PartialTile tile = {partial + lane, stats + lane, padded, shape.latent};
    for (int64_t row = begin; row < end; row += kMlaChunk) {
      const int64_t n = std::min(kMlaChunk, end - row);
      const int64_t n_ahead = std::min(n, end - row - n);
      score_tile<kVectors>(queries.data + lane * queries.dim, queries.dim, rows, row, n, weights,
                           kTileLanes<kVectors>);
      softmax_tile<kVectors>(weights, n, tile);
      add_values_tile<kVectors>(weights, rows, row, n, n_ahead, shape.row_dim(), tile);
    }
  });
}

inline void merge_partials(const MlaShape& shape, const float* const* partials, int64_t n,
                           int64_t first_dim, int64_t n_dims, float* out) noexcept {
  const FloatTag d;
  const int64_t padded = mla_padded(shape.n_head);
  constexpr int64_t kStrip = 16;  // dimensions that are summed at once
  alignas(64) float strip[kStrip * kMlaLanesHere];
  for (int64_t lane = 0; lane < padded; lane += kMlaLanesHere) {
    const auto stat = [&](int64_t at, int64_t row) HWY_ATTR {
      return hn::LoadU(d, partials[at] + (shape.latent + row) * padded + lane);
    };
    auto max = hn::Set(d, std::numeric_limits<float>::lowest());
    for (int64_t at = 0; at < n; ++at) max = hn::Max(max, stat(at, 0));
    auto sum = hn::Zero(d);
    for (int64_t at = 0; at < n; ++at) {
      sum = hn::MulAdd(exp_non_positive(d, hn::Sub(stat(at, 0), max)), stat(at, 1), sum);
    }
    const auto inverse =
        hn::IfThenElseZero(hn::Gt(sum, hn::Zero(d)), hn::Div(hn::Set(d, 1.0f), sum));
    for (int64_t first = first_dim; first < first_dim + n_dims; first += kStrip) {
      const int64_t n_here = std::min(kStrip, first_dim + n_dims - first);
      std::fill_n(strip, n_here * kMlaLanesHere, 0.0f);
      for (int64_t at = 0; at < n; ++at) {
        const auto factor = exp_non_positive(d, hn::Sub(stat(at, 0), max));
        for (int64_t dim = 0; dim < n_here; ++dim) {
          const auto value = hn::LoadU(d, partials[at] + (first + dim) * padded + lane);
          float* total = strip + dim * kMlaLanesHere;
          hn::Store(hn::MulAdd(factor, value, hn::Load(d, total)), d, total);
        }
      }
      for (int64_t dim = 0; dim < n_here; ++dim) {
        float* total = strip + dim * kMlaLanesHere;
        hn::Store(hn::Mul(hn::Load(d, total), inverse), d, total);
        for (int64_t at = 0; at < kMlaLanesHere && lane + at < shape.n_head; ++at) {
          out[(lane + at) * shape.latent + first + dim] = total[at];
        }
      }
    }
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
