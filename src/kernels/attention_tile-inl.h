// Prefill and reconstruction: a tile of query tokens over whole segments, as small matrix products.
// Compiled once per Highway target.
//
// Query rows m = token * group + head are packed in panels of kPanelQueries. Blocks of kBlockRows
// rows are unpacked to float panels of kPanelCols columns (K transposed), so that both products run
// in a kernel of kPanelQueries x two vectors whose operands are contiguous.
#if defined(CTXZIP_KERNELS_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_ATTENTION_TILE_INL_H_
#undef CTXZIP_KERNELS_ATTENTION_TILE_INL_H_
#else
#define CTXZIP_KERNELS_ATTENTION_TILE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "kernels/attention_codes-inl.h"
#include "kernels/panel_product-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

constexpr int64_t kBlockRows = 64;
// Panels whose scores are held at once.
constexpr int64_t kStripPanels = 4;
static_assert(kBlockRows % kPanelCols == 0);

constexpr int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Buffers of one call, carved out of the caller's scratch.
struct TileScratch {
  float* q;        // (query panel, dim, kPanelQueries), scaled
  float* k;        // (column panel, dim, kPanelCols)
  float* v;        // (dim panel, row, kPanelCols)
  float* out;      // (query panel, dim panel, kPanelQueries, kPanelCols)
  float* weights;  // (kStripPanels, kPanelQueries, kBlockRows)
  float* max;      // (query row)
  float* sum;      // (query row)
  float* factor;   // (query row)
  size_t bytes;

  TileScratch(const AttentionShape& shape, std::byte* memory) {
    const int64_t queries = round_up(kMaxTileTokens * shape.group, kPanelQueries);
    const int64_t padded_dim = round_up(shape.n_value(), kPanelCols);
    int64_t used = 0;
    const auto take = [&](int64_t floats) {
      float* start = memory ? reinterpret_cast<float*>(memory) + used : nullptr;
      used += round_up(floats, 16);
      return start;
    };
    q = take(queries * shape.head_dim);
    k = take(kBlockRows * shape.head_dim);
    v = take(kBlockRows * padded_dim);
    out = take(queries * padded_dim);
    weights = take(kStripPanels * kPanelQueries * kBlockRows);
    max = take(queries);
    sum = take(queries);
    factor = take(queries);
    bytes = static_cast<size_t>(used) * sizeof(float);
  }
};

// acc[m][col] = scaled q_m * k_col for one query panel and one column panel.
HWY_INLINE void score_panel(const float* q, const float* k, int64_t head_dim,
                            TileAccumulators& acc) {
  const FloatTag d;
  for (int64_t m = 0; m < kPanelQueries; ++m) acc[m][0] = acc[m][1] = hn::Zero(d);
  multiply_panels(q, kPanelQueries, 1, k, head_dim, acc);
}

void pack_queries(const AttentionShape& shape, const Queries& q, int64_t n_panels, float* packed) {
  const int64_t panel_floats = kPanelQueries * shape.head_dim;
  std::fill_n(packed, n_panels * panel_floats, 0.0f);
  for (int64_t token = 0; token < q.n_tokens; ++token) {
    for (int64_t head = 0; head < shape.group; ++head) {
      const float* from = q.data + token * q.token_stride + head * shape.head_dim;
      const int64_t m = token * shape.group + head;
      float* to = packed + m / kPanelQueries * panel_floats + m % kPanelQueries;
      for (int64_t dim = 0; dim < shape.head_dim; ++dim) {
        to[dim * kPanelQueries] = from[dim] * shape.scale;
      }
    }
  }
}

template <class T>
void pack_keys(const Segment& segment, int64_t head_dim, int64_t begin, int64_t n, float* packed) {
  const int64_t padded = round_up(n, kPanelCols < 4 ? 4 : kPanelCols);
  const T* rows[kBlockRows];
  list_rows(segment.k, segment.index, head_dim, begin, n, padded, rows);
#if HWY_TARGET == HWY_SCALAR
  for (int64_t row = 0; row < padded; ++row) {
    for (int64_t dim = 0; dim < head_dim; ++dim) {
      packed[(row / kPanelCols * head_dim + dim) * kPanelCols + row % kPanelCols] =
          hn::GetLane(load_row(FloatTag(), rows[row] + dim));
    }
  }
#else
  for (int64_t row = 0; row < padded; row += 4) {
    float* to = packed + row / kPanelCols * head_dim * kPanelCols + row % kPanelCols;
    for (int64_t dim = 0; dim < head_dim; dim += 4) {
      transpose_four(rows + row, dim, to + dim * kPanelCols, kPanelCols);
    }
  }
#endif
}

template <class T>
void pack_values(const Segment& segment, const AttentionShape& shape, int64_t begin, int64_t n,
                 float* packed) {
  const hn::CappedTag<float, HWY_MIN(8, kPanelCols)> d;
  const T* rows[kBlockRows];
  list_rows(segment.v, segment.index, shape.head_dim, begin, n, n, rows);
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t dim = 0; dim < shape.n_value(); dim += lanes_of<decltype(d)>()) {
      float* to = packed + (dim / kPanelCols * kBlockRows + row) * kPanelCols + dim % kPanelCols;
      hn::Store(load_row(d, rows[row] + dim), d, to);
    }
  }
}

// As pack_keys, from codes; begin is a multiple of kBlockRows. Padding rows are what is stored
// there.
template <int kBits>
void unpack_keys(const QuantisedLayout& layout, const uint8_t* keys, int64_t begin, int64_t n,
                 float* packed) {
  static_assert(kBlockRows == kGroupRows && kStripRows % kPanelCols == 0);
  const FloatTag d;
  const uint8_t* scales = keys + layout.key_group(begin / kGroupRows);
  const auto* halves = reinterpret_cast<const uint16_t*>(scales);
  for (int64_t row = 0; row < round_up(n, kPanelCols); row += lanes_of<FloatTag>()) {
    const int64_t strip = (begin + row) / kStripRows;
    Octets<kBits> octets = {keys + layout.key_codes(strip) + row % kStripRows * 4, kStripRows * 4};
    float* to = packed + row / kPanelCols * layout.head_dim * kPanelCols + row % kPanelCols;
    for (int64_t dim = 0; dim < layout.head_dim; dim += 8, octets.advance()) {
      hn::Vec<FloatTag> codes[8];
      load_octet(d, octets, codes);
      for (int64_t at = 0; at < 8; ++at) {
        const auto scale = hn::Set(d, half_to_float(halves[dim + at]));
        const auto min = hn::Set(d, half_to_float(halves[layout.head_dim + dim + at]));
        hn::Store(hn::MulAdd(codes[at], scale, min), d, to + (dim + at) * kPanelCols);
      }
    }
  }
}

// As pack_values, from codes; begin is a multiple of kStripRows.
template <int kBits>
void unpack_values(const QuantisedLayout& layout, const uint8_t* values, int64_t begin, int64_t n,
                   float* packed) {
  const hn::CappedTag<float, HWY_MIN(8, kPanelCols)> d;
  for (int64_t row = 0; row < n; row += 8) {
    const int64_t strip = (begin + row) / kStripRows;
    const int64_t in_strip = row % kStripRows;
    const auto* halves = reinterpret_cast<const uint16_t*>(values + layout.value_strip(strip));
    const uint8_t* codes_start = values + layout.value_codes(strip);
    for (int64_t dim = 0; dim < layout.head_dim; dim += lanes_of<decltype(d)>()) {
      Octets<kBits> octets = {codes_start + dim * 4, layout.head_dim * 4};
      octets.codes += in_strip / 8 * octets.step();
      hn::Vec<decltype(d)> codes[8];
      load_octet(d, octets, codes);
      float* to = packed + (dim / kPanelCols * kBlockRows + row) * kPanelCols + dim % kPanelCols;
      for (int64_t at = 0; at < 8; ++at) {
        const auto scale = hn::Set(d, half_to_float(halves[in_strip + at]));
        const auto min = hn::Set(d, half_to_float(halves[kStripRows + in_strip + at]));
        hn::Store(hn::MulAdd(codes[at], scale, min), d, to + at * kPanelCols);
      }
    }
  }
}

template <int kBits>
void unpack_block(const AttentionShape& shape, const Segment& segment, int64_t begin, int64_t n,
                  bool with_values, const TileScratch& scratch) {
  const QuantisedLayout layout = {*segment.quantised, shape.head_dim};
  unpack_keys<kBits>(layout, static_cast<const uint8_t*>(segment.k), begin, n, scratch.k);
  if (!with_values) return;
  unpack_values<kBits>(layout, static_cast<const uint8_t*>(segment.v), begin, n, scratch.v);
}

void pack_block(const AttentionShape& shape, const Segment& segment, int64_t begin, int64_t n,
                bool with_values, const TileScratch& scratch) {
  if (segment.quantised == RowType::kQ8) {
    unpack_block<8>(shape, segment, begin, n, with_values, scratch);
  } else if (segment.quantised == RowType::kQ4) {
    unpack_block<4>(shape, segment, begin, n, with_values, scratch);
  } else if (shape.row_type == RowType::kF32) {
    pack_keys<float>(segment, shape.head_dim, begin, n, scratch.k);
    if (with_values) pack_values<float>(segment, shape, begin, n, scratch.v);
  } else {
    pack_keys<uint16_t>(segment, shape.head_dim, begin, n, scratch.k);
    if (with_values) pack_values<uint16_t>(segment, shape, begin, n, scratch.v);
  }
}

// Scores of n_panels query panels against the n columns of the packed block.
void score_strip(const float* q, const float* k, int64_t head_dim, int64_t n_panels, int64_t n,
                 float* weights) {
  const FloatTag d;
  for (int64_t col = 0; col < n; col += kPanelCols) {
    for (int64_t panel = 0; panel < n_panels; ++panel) {
      TileAccumulators acc;
      score_panel(q + panel * head_dim * kPanelQueries, k + col * head_dim, head_dim, acc);
      float* to = weights + panel * kPanelQueries * kBlockRows + col;
      for (int64_t m = 0; m < kPanelQueries; ++m) {
        hn::Store(acc[m][0], d, to + m * kBlockRows);
        hn::Store(acc[m][1], d, to + m * kBlockRows + kPanelCols / 2);
      }
    }
  }
}

// Scores of query row m to exponentials; the first n_seen of n columns count, the rest become 0.
HWY_INLINE void softmax_row(float* weights, int64_t n_seen, int64_t n, int64_t m,
                            const TileScratch& scratch) {
  const int64_t padded = pad_scores(weights, n_seen);
  const float old_max = scratch.max[m];
  const float max = max_of(weights, padded, old_max);
  const float factor = max > old_max ? exp_non_positive(old_max - max) : 1.0f;
  scratch.max[m] = max;
  scratch.factor[m] = factor;
  scratch.sum[m] = scratch.sum[m] * factor + exponentiate(weights, padded, max);
  for (int64_t at = padded; at < n; ++at) weights[at] = 0;
}

// out = out * factor + weights * V for n_panels query panels; `factor` is per query row.
void add_values(const float* weights, const float* v, int64_t n, int64_t n_panels,
                int64_t n_dim_panels, const float* factor, float* out) {
  const FloatTag d;
  constexpr int64_t kPanelFloats = kPanelQueries * kPanelCols;
  for (int64_t dim_panel = 0; dim_panel < n_dim_panels; ++dim_panel) {
    for (int64_t panel = 0; panel < n_panels; ++panel) {
      float* to = out + (panel * n_dim_panels + dim_panel) * kPanelFloats;
      TileAccumulators acc;
      for (int64_t m = 0; m < kPanelQueries; ++m) {
        const auto scale = hn::Set(d, factor[panel * kPanelQueries + m]);
        acc[m][0] = hn::Mul(hn::Load(d, to + m * kPanelCols), scale);
        acc[m][1] = hn::Mul(hn::Load(d, to + m * kPanelCols + kPanelCols / 2), scale);
      }
      multiply_panels(weights + panel * kPanelQueries * kBlockRows, 1, kBlockRows,
                      v + dim_panel * kBlockRows * kPanelCols, n, acc);
      for (int64_t m = 0; m < kPanelQueries; ++m) {
        hn::Store(acc[m][0], d, to + m * kPanelCols);
        hn::Store(acc[m][1], d, to + m * kPanelCols + kPanelCols / 2);
      }
    }
  }
}

// The rows of one segment that each token of a tile sees: [first(t), end(t)), both ascending in t.
struct VisibleRows {
  int64_t n_rows;
  bool causal;
  int64_t causal_rows;
  bool windowed;
  int64_t hidden;

  VisibleRows(const TileSegments& over, int segment)
      : n_rows(over.segments[static_cast<size_t>(segment)].n_rows),
        causal(segment == over.causal),
        causal_rows(over.causal_rows),
        windowed(!over.hidden.empty()),
        hidden(windowed ? over.hidden[static_cast<size_t>(segment)] : 0) {}

  int64_t first(int64_t token) const { return windowed ? std::max<int64_t>(0, hidden + token) : 0; }
  int64_t end(int64_t token) const {
    return causal ? std::min(n_rows, causal_rows + token) : n_rows;
  }
};

// One segment, block by block.
void attend_segment(const AttentionShape& shape, int64_t n_tokens, const Segment& segment,
                    const VisibleRows& visible, bool with_values, const TileScratch& scratch) {
  const int64_t n_queries = n_tokens * shape.group;
  const int64_t n_dim_panels = round_up(shape.n_value(), kPanelCols) / kPanelCols;
  const auto token_of = [&](int64_t m) { return std::min(m, n_queries - 1) / shape.group; };
  const auto rows_seen = [&](int64_t m) { return visible.end(token_of(m)); };
  constexpr int64_t kStripQueries = kStripPanels * kPanelQueries;
  const int64_t first_block = visible.first(0) / kBlockRows * kBlockRows;
  for (int64_t begin = first_block; begin < rows_seen(n_queries - 1); begin += kBlockRows) {
    const int64_t n = std::min(kBlockRows, rows_seen(n_queries - 1) - begin);
    pack_block(shape, segment, begin, n, with_values, scratch);
    for (int64_t first = 0; first < n_queries; first += kStripQueries) {
      const int64_t n_panels =
          (std::min(kStripQueries, n_queries - first) + kPanelQueries - 1) / kPanelQueries;
      const int64_t last = first + n_panels * kPanelQueries - 1;
      const int64_t n_strip = std::min(n, rows_seen(last) - begin);
      if (n_strip <= 0 || visible.first(token_of(first)) >= begin + n_strip) continue;
      const int64_t panel = first / kPanelQueries;
      score_strip(scratch.q + panel * kPanelQueries * shape.head_dim, scratch.k, shape.head_dim,
                  n_panels, n_strip, scratch.weights);
      for (int64_t m = first; m <= last; ++m) {
        float* weights = scratch.weights + (m - first) * kBlockRows;
        int64_t n_seen = std::clamp<int64_t>(rows_seen(m) - begin, 0, n_strip);
        const int64_t n_hidden = std::clamp<int64_t>(visible.first(token_of(m)) - begin, 0, n_seen);
        if (n_hidden == n_seen) n_seen = 0;
        std::fill_n(weights, std::min(n_hidden, n_seen), kMinusInfinity);
        softmax_row(weights, n_seen, n_strip, m, scratch);
      }
      if (!with_values) continue;
      add_values(scratch.weights, scratch.v, n_strip, n_panels, n_dim_panels,
                 scratch.factor + first,
                 scratch.out + panel * n_dim_panels * kPanelQueries * kPanelCols);
    }
  }
}

void write_lse(int64_t n_queries, const TileScratch& scratch, float* lse) {
  for (int64_t m = 0; m < n_queries; ++m) {
    const float sum = scratch.sum[m];
    lse[m] = sum > 0 ? scratch.max[m] + std::log(sum) : kMinusInfinity;
  }
}

void write_outputs(const AttentionShape& shape, int64_t n_tokens, const TileScratch& scratch,
                   float* out, int64_t out_token_stride) {
  const int64_t n_dim_panels = round_up(shape.n_value(), kPanelCols) / kPanelCols;
  for (int64_t m = 0; m < n_tokens * shape.group; ++m) {
    const float sum = scratch.sum[m];
    const float scale = sum > 0 ? 1.0f / sum : 0.0f;
    float* to = out + m / shape.group * out_token_stride + m % shape.group * shape.n_value();
    for (int64_t dim = 0; dim < shape.n_value(); ++dim) {
      const int64_t panel = m / kPanelQueries * n_dim_panels + dim / kPanelCols;
      to[dim] =
          scale *
          scratch.out[(panel * kPanelQueries + m % kPanelQueries) * kPanelCols + dim % kPanelCols];
    }
  }
}

size_t scratch_bytes(const AttentionShape& shape) noexcept {
  return TileScratch(shape, nullptr).bytes;
}

void attend_tile(const AttentionShape& shape, const Queries& q, const TileSegments& over,
                 float* out, int64_t out_token_stride, float* lse, std::byte* memory) noexcept {
  const TileScratch scratch(shape, memory);
  const int64_t n_queries = q.n_tokens * shape.group;
  const int64_t n_panels = round_up(n_queries, kPanelQueries) / kPanelQueries;
  pack_queries(shape, q, n_panels, scratch.q);
  std::fill_n(scratch.max, n_panels * kPanelQueries, kMinusInfinity);
  std::fill_n(scratch.sum, n_panels * kPanelQueries, 0.0f);
  if (out) {
    const int64_t padded_dim = round_up(shape.n_value(), kPanelCols);
    std::fill_n(scratch.out, n_panels * kPanelQueries * padded_dim, 0.0f);
    // Columns beyond the values are multiplied too: stale bits there could be slow subnormals.
    std::fill_n(scratch.v, kBlockRows * padded_dim, 0.0f);
  }
  const int n_segments = static_cast<int>(over.segments.size());
  for (int segment = 0; segment <= n_segments; ++segment) {
    if (segment == over.n_lse_segments) {
      if (lse) write_lse(n_queries, scratch, lse);
      if (!out) return;
    }
    if (segment == n_segments) break;
    attend_segment(shape, q.n_tokens, over.segments[static_cast<size_t>(segment)],
                   VisibleRows(over, segment), out != nullptr, scratch);
  }
  write_outputs(shape, q.n_tokens, scratch, out, out_token_stride);
}

// How columns are reduced over query rows: from score minus lse, -inf for rows that do not count.
struct LargestLog {
  static constexpr float kStart = kMinusInfinity;
  template <class V>
  static HWY_INLINE V add(V so_far, V log) {
    return hn::Max(so_far, log);
  }
  static float add(float so_far, float figure) { return std::max(so_far, figure); }
};
struct SumOfWeights {
  static constexpr float kStart = 0;
  template <class V>
  static HWY_INLINE V add(V so_far, V log) {
    const FloatTag d;
    return hn::Add(so_far, exp_non_positive(d, hn::Min(log, hn::Zero(d))));
  }
  static float add(float so_far, float figure) { return so_far + figure; }
};

// Reduces the scores of all query panels for the kPanelCols columns of one packed panel.
template <class Reduction>
HWY_INLINE void reduce_panel(const TileScratch& scratch, const float* k, int64_t head_dim,
                             int64_t n_panels, const float* minus_lse, float* best) {
  const FloatTag d;
  auto best0 = hn::Set(d, Reduction::kStart);
  auto best1 = best0;
  for (int64_t panel = 0; panel < n_panels; ++panel) {
    TileAccumulators acc;
    score_panel(scratch.q + panel * head_dim * kPanelQueries, k, head_dim, acc);
    for (int64_t m = 0; m < kPanelQueries; ++m) {
      const auto offset = hn::Set(d, minus_lse[panel * kPanelQueries + m]);
      best0 = Reduction::add(best0, hn::Add(acc[m][0], offset));
      best1 = Reduction::add(best1, hn::Add(acc[m][1], offset));
    }
  }
  hn::Store(best0, d, best);
  hn::Store(best1, d, best + kPanelCols / 2);
}

// The packed columns [first, first + n) against one tile of at most kMaxTileTokens tokens.
template <class Reduction>
void reduce_tile(const AttentionShape& shape, const Queries& q, const float* lse, int64_t n,
                 const TileScratch& scratch, float* best) {
  const int64_t n_queries = q.n_tokens * shape.group;
  const int64_t n_panels = round_up(n_queries, kPanelQueries) / kPanelQueries;
  pack_queries(shape, q, n_panels, scratch.q);
  // Skipped tokens and padding: every score plus -inf loses.
  float* minus_lse = scratch.factor;
  std::fill_n(minus_lse, n_panels * kPanelQueries, kMinusInfinity);
  for (int64_t m = 0; m < n_queries; ++m) {
    if (lse[m] != kMinusInfinity) minus_lse[m] = -lse[m];
  }
  for (int64_t col = 0; col < n; col += kPanelCols) {
    alignas(64) float panel_best[kPanelCols];
    reduce_panel<Reduction>(scratch, scratch.k + col * shape.head_dim, shape.head_dim, n_panels,
                            minus_lse, panel_best);
    for (int64_t at = 0; at < std::min(kPanelCols, n - col); ++at) {
      best[col + at] = Reduction::add(best[col + at], panel_best[at]);
    }
  }
}

template <class Reduction>
void reduce_columns(const AttentionShape& shape, const Queries& q, const float* lse,
                    const Segment& columns, int64_t begin, int64_t end, float* best,
                    std::byte* memory) noexcept {
  const TileScratch scratch(shape, memory);
  for (int64_t first = begin; first < end; first += kBlockRows) {
    const int64_t n = std::min(kBlockRows, end - first);
    pack_block(shape, columns, first, n, false, scratch);
    for (int64_t token = 0; token < q.n_tokens; token += kMaxTileTokens) {
      const Queries tile = {.data = q.data + token * q.token_stride,
                            .n_tokens = std::min(kMaxTileTokens, q.n_tokens - token),
                            .token_stride = q.token_stride};
      reduce_tile<Reduction>(shape, tile, lse + token * shape.group, n, scratch, best + first);
    }
  }
}

void column_max(const AttentionShape& shape, const Queries& q, const float* lse,
                const Segment& columns, int64_t begin, int64_t end, float* best,
                std::byte* memory) noexcept {
  reduce_columns<LargestLog>(shape, q, lse, columns, begin, end, best, memory);
}

void column_sum(const AttentionShape& shape, const Queries& q, const float* lse,
                const Segment& columns, int64_t begin, int64_t end, float* sums,
                std::byte* memory) noexcept {
  reduce_columns<SumOfWeights>(shape, q, lse, columns, begin, end, sums, memory);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
