// Decode over quantised rows, compiled once per Highway target.
//
// Both products run on the codes. For each group of rows the scales of K are folded into the query,
// which is rounded to integers, and the scores are integer sums over channels with one row in each
// lane; the scales of V are folded into the weights, and the outputs are integer sums over rows
// with one channel in each lane.
#if defined(CTXZIP_KERNELS_ATTENTION_QUANTISED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_ATTENTION_QUANTISED_INL_H_
#undef CTXZIP_KERNELS_ATTENTION_QUANTISED_INL_H_
#else
#define CTXZIP_KERNELS_ATTENTION_QUANTISED_INL_H_
#endif

#include <algorithm>
#include <limits>
#include <type_traits>

#include "kernels/attention_codes-inl.h"
#include "kernels/attention_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR

void attend_quantised_block(const AttentionShape& shape, const float* q, const Segment& segment,
                            int64_t begin, int64_t end, float* partial) {
  ref_attention_kernels().attend_block(shape, q, segment, begin, end, partial);
}

#else

// Rows between two turns of the softmax, at most: many, for few turns.
template <int kBits>
constexpr int64_t kChunkRows = kBits == 8 ? 128 : 256;
// And at most so many codes of K that they, V's and the next chunk's K stay near the first-level
// cache.
constexpr int64_t kChunkCodesBytes = 16 << 10;

template <int kBits>
int64_t chunk_rows(const QuantisedLayout& layout) {
  int64_t rows = kChunkRows<kBits>;
  while (rows > kGroupRows && rows / kStripRows * layout.strip_codes_bytes() > kChunkCodesBytes) {
    rows /= 2;
  }
  return rows;
}

// Rows are scored in steps that every vector width divides.
constexpr int64_t kRowStep = 16;
static_assert(kStripRows % kRowStep == 0 && kRowsPerBlock % kChunkRows<4> == 0);
static_assert(kChunkRows<8> % kGroupRows == 0 && kChunkRows<4> <= kMaxQuantisedDim);

// Rounding a query to 8 bits loses less than 4-bit keys have lost; 8-bit keys need 16.
template <int kBits>
using KeyFactor = std::conditional_t<kBits == 8, int16_t, int8_t>;
// Likewise weights, which are not negative.
template <int kBits>
using ValueFactor = std::conditional_t<kBits == 8, int16_t, uint8_t>;

template <int kBits>
struct QuantisedState {
  alignas(64) float q[kMaxHeads *
                      kMaxQuantisedDim];  // (head, kMaxQuantisedDim), times the shape's scale
  alignas(64) KeyFactor<kBits> key_factors[kMaxHeads * kMaxQuantisedDim];
  alignas(64) ValueFactor<kBits> value_factors[kMaxHeads * kChunkRows<kBits>];
  alignas(64) float scaled[kMaxHeads * kMaxQuantisedDim];    // what is rounded to factors
  alignas(64) float weights[kMaxHeads * kChunkRows<kBits>];  // (head, row): scores
  alignas(64) float scale[kMaxQuantisedDim];                 // of channels, then of rows
  alignas(64) float middle[kMaxQuantisedDim];
  Folded folded[kMaxHeads];
  float max[kMaxHeads];
  float sum[kMaxHeads];
  float offset[kMaxHeads];  // what every output of the head is short of
};

// Rows [begin, end) of one chunk, widened to steps [first, last) of rows; all count from the
// chunk's start.
struct ChunkRange {
  int64_t start;
  int64_t begin;
  int64_t end;
  int64_t first;
  int64_t last;

  ChunkRange(int64_t row, int64_t end_row, int64_t n_rows)
      : start(row / n_rows * n_rows),
        begin(row - start),
        end(std::min(n_rows, end_row - start)),
        first(begin / kRowStep * kRowStep),
        last((end + kRowStep - 1) / kRowStep * kRowStep) {}

  int64_t strip(int64_t row) const { return (start + row) / kStripRows; }
};

// Bytes to be fetched into the cache bit by bit while something else is computed.
class Fetch {
 public:
  Fetch(const uint8_t* first, int64_t n_bytes, int64_t n_parts)
      : next_(first), end_(first + n_bytes), part_(n_bytes / std::max<int64_t>(1, n_parts) + 64) {}
  void part() {
    for (const uint8_t* stop = std::min(end_, next_ + part_); next_ < stop; next_ += 64) {
      hwy::Prefetch(next_);
    }
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
  int64_t part_;
};

// scale and middle (min + middle_code * scale) of n f16 scales followed, `distance` later, by mins.
template <class D>
HWY_INLINE void load_scales(D d, const uint8_t* scales, int64_t distance, int64_t n,
                            float middle_code, float* scale, float* middle) {
  const auto* halves = reinterpret_cast<const uint16_t*>(scales);
  for (int64_t at = 0; at < n; at += lanes_of<D>()) {
    const auto value = load_row(d, halves + at);
    hn::Store(value, d, scale + at);
    hn::Store(hn::MulAdd(value, hn::Set(d, middle_code), load_row(d, halves + distance + at)), d,
              middle + at);
  }
}

template <int kBits>
constexpr float kMiddleCode = kBits == 8 ? 127.5f : 7.5f;

// The query with the scales of a group of keys.
template <int kHeads, int kBits>
HWY_INLINE void fold_query(const QuantisedLayout& layout, const uint8_t* scales,
                           QuantisedState<kBits>& state) {
  const NarrowTag d;
  const int64_t head_dim = layout.head_dim;
  load_scales(d, scales, head_dim, head_dim, kMiddleCode<kBits>, state.scale, state.middle);
  // Head after head in each step: what one waits for, the next need not.
  Scaled scaled[kHeads];
  for (int64_t head = 0; head < kHeads; ++head) {
    const float* q = state.q + head * kMaxQuantisedDim;
    scaled[head] = scale_numbers(
        d, head_dim, [&](int64_t at) HWY_ATTR { return hn::Load(d, q + at); }, state.scale,
        state.middle, state.scaled + head * kMaxQuantisedDim);
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t at = head * kMaxQuantisedDim;
    state.folded[head] = round_factors<false>(state.scaled + at, head_dim, scaled[head],
                                              kMiddleCode<kBits>, state.key_factors + at);
  }
}

// weights[head][row] = score for the rows [first, last) of one group.
template <int kHeads, int kBits>
HWY_INLINE void score_group(const QuantisedLayout& layout, const uint8_t* keys,
                            const ChunkRange& rows, int64_t first, int64_t last, Fetch& fetch,
                            QuantisedState<kBits>& state) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  fold_query<kHeads>(layout, keys + layout.key_group((rows.start + first) / kGroupRows), state);
  for (int64_t row = first; row < last; row += lanes_of<FloatTag>()) {
    if (row % kRowStep == 0) fetch.part();
    const Octets<kBits> octets = {keys + layout.key_codes(rows.strip(row)) + row % kStripRows * 4,
                                  kStripRows * 4};
    hn::Vec<decltype(di)> acc[kHeads];
    for (auto& lanes : acc) lanes = hn::Zero(di);
    add_octets<kHeads, kMaxQuantisedDim>(di, octets, layout.head_dim / 8, state.key_factors, acc);
    for (int64_t head = 0; head < kHeads; ++head) {
      const Folded& folded = state.folded[head];
      const auto score = hn::MulAdd(hn::ConvertTo(d, acc[head]), hn::Set(d, folded.step),
                                    hn::Set(d, folded.offset));
      hn::Store(score, d, state.weights + head * kChunkRows<kBits> + row);
    }
  }
}

// weights[head][row] = score, -inf for rows that are not asked for.
template <int kHeads, int kBits>
HWY_NOINLINE void score_chunk(const QuantisedLayout& layout, const uint8_t* keys,
                              const ChunkRange& rows, Fetch fetch, QuantisedState<kBits>& state) {
  for (int64_t row = rows.first; row < rows.last;) {
    const int64_t end = std::min(rows.last, (row / kGroupRows + 1) * kGroupRows);
    score_group<kHeads>(layout, keys, rows, row, end, fetch, state);
    row = end;
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    float* scores = state.weights + head * kChunkRows<kBits>;
    std::fill(scores + rows.first, scores + rows.begin, kMinusInfinity);
    std::fill(scores + rows.end, scores + rows.last, kMinusInfinity);
  }
}

// Raises the running maximum to that of the scores; what was summed so far follows it.
template <int kBits>
HWY_INLINE void raise_max(const float* scores, int64_t n, int64_t head, int64_t head_dim,
                          QuantisedState<kBits>& state, float* head_out) {
  const float max = max_of(scores, n, state.max[head]);
  if (!(max > state.max[head])) return;
  const float factor = exp_non_positive(state.max[head] - max);
  state.max[head] = max;
  state.sum[head] *= factor;
  state.offset[head] *= factor;
  const NarrowTag d;
  for (int64_t dim = 0; dim < head_dim; dim += lanes_of<NarrowTag>()) {
    hn::StoreU(hn::Mul(hn::LoadU(d, head_out + dim), hn::Set(d, factor)), d, head_out + dim);
  }
}

// Scores to weights relative to the running maximum, with the scales of the values folded in.
template <int kBits>
HWY_INLINE Scaled weigh_head(const ChunkRange& rows, int64_t head, QuantisedState<kBits>& state) {
  const FloatTag d;
  const float* scores = state.weights + head * kChunkRows<kBits> + rows.first;
  // A head whose scores are all -inf has no finite maximum to subtract.
  const auto max = hn::Set(d, HWY_MAX(state.max[head], std::numeric_limits<float>::lowest()));
  auto sum = hn::Zero(d);
  const auto weights = [&](int64_t at) HWY_ATTR {
    const auto weight = exp_non_positive(d, hn::Sub(hn::Load(d, scores + at), max));
    sum = hn::Add(sum, weight);
    return weight;
  };
  const Scaled scaled = scale_numbers(d, rows.last - rows.first, weights, state.scale + rows.first,
                                      state.middle + rows.first,
                                      state.scaled + head * kChunkRows<kBits> + rows.first);
  state.sum[head] += hn::GetLane(hn::SumOfLanes(d, sum));
  return scaled;
}

// Scores to factors of the values' codes.
template <int kHeads, int kBits>
HWY_NOINLINE void weigh_chunk(const QuantisedLayout& layout, const uint8_t* values,
                              const ChunkRange& rows, QuantisedState<kBits>& state, float* out) {
  const int64_t n = rows.last - rows.first;
  for (int64_t row = rows.first; row < rows.last; row += kRowStep) {
    const uint8_t* scales = values + layout.value_strip(rows.strip(row)) + row % kStripRows * 2;
    load_scales(NarrowTag(), scales, kStripRows, kRowStep, kMiddleCode<kBits>, state.scale + row,
                state.middle + row);
  }
  // Bytes behind the last row may hold anything: a weight of 0 does not undo a NaN.
  for (float* numbers : {state.scale, state.middle}) {
    std::fill(numbers + rows.first, numbers + rows.begin, 0.0f);
    std::fill(numbers + rows.end, numbers + rows.last, 0.0f);
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    raise_max(state.weights + head * kChunkRows<kBits> + rows.first, n, head, layout.head_dim,
              state, out + head * (layout.head_dim + 2));
  }
  Scaled scaled[kHeads];
  for (int64_t head = 0; head < kHeads; ++head) scaled[head] = weigh_head(rows, head, state);
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t at = head * kChunkRows<kBits> + rows.first;
    state.folded[head] = round_factors<true>(state.scaled + at, n, scaled[head], kMiddleCode<kBits>,
                                             state.value_factors + at);
    state.offset[head] += state.folded[head].offset;
  }
}

// out[head] += weighted sum of the values, all but the offset.
template <int kHeads, int kBits, class D>
HWY_NOINLINE void add_chunk(D d, const QuantisedLayout& layout, const uint8_t* values,
                            const ChunkRange& rows, Fetch fetch, const QuantisedState<kBits>& state,
                            float* out) {
  const hn::RebindToSigned<D> di;
  for (int64_t dim = 0; dim < layout.head_dim; dim += lanes_of<D>()) {
    fetch.part();
    hn::Vec<decltype(di)> acc[kHeads];
    for (auto& lanes : acc) lanes = hn::Zero(di);
    for (int64_t row = rows.first; row < rows.last;) {
      const int64_t end = std::min(rows.last, (row / kStripRows + 1) * kStripRows);
      Octets<kBits> octets = {values + layout.value_codes(rows.strip(row)) + dim * 4,
                              layout.head_dim * 4};
      octets.codes += row % kStripRows / 8 * octets.step();
      add_octets<kHeads, kChunkRows<kBits> >(di, octets, (end - row) / 8, state.value_factors + row,
                                             acc);
      row = end;
    }
    for (int64_t head = 0; head < kHeads; ++head) {
      float* to = out + head * (layout.head_dim + 2) + dim;
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, acc[head]), hn::Set(d, state.folded[head].step),
                            hn::LoadU(d, to)),
                 d, to);
    }
  }
}

// kHeads heads over rows [begin, end); out is (kHeads, head_dim + 2).
template <int kHeads, int kBits, class D>
void attend_quantised_heads(D d, const AttentionShape& shape, const float* q,
                            const Segment& segment, int64_t begin, int64_t end, float* out) {
  const QuantisedLayout layout = {kBits == 8 ? RowType::kQ8 : RowType::kQ4, shape.head_dim};
  const auto* keys = static_cast<const uint8_t*>(segment.k);
  const auto* values = static_cast<const uint8_t*>(segment.v);
  const int64_t n_chunk = chunk_rows<kBits>(layout);
  QuantisedState<kBits> state;
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t dim = 0; dim < shape.head_dim; ++dim) {
      state.q[head * kMaxQuantisedDim + dim] = shape.scale * q[head * shape.head_dim + dim];
    }
  }
  std::fill_n(state.max, kHeads, kMinusInfinity);
  std::fill_n(state.sum, kHeads, 0.0f);
  std::fill_n(state.offset, kHeads, 0.0f);
  for (int64_t row = begin; row < end;) {
    const ChunkRange rows(row, end, n_chunk);
    const int64_t first_strip = rows.strip(rows.first);
    const int64_t n_strips = rows.strip(rows.last - 1) + 1 - first_strip;
    const Fetch fetch_values(values + layout.value_strip(first_strip), layout.value_strip(n_strips),
                             (rows.last - rows.first) / kRowStep);
    score_chunk<kHeads>(layout, keys, rows, fetch_values, state);
    weigh_chunk<kHeads>(layout, values, rows, state, out);
    // Behind the last chunk come the rows of the caller's next block.
    const int64_t next = rows.start + n_chunk;
    const int64_t n_next = std::clamp<int64_t>(segment.n_rows - next, 0, n_chunk);
    const Fetch fetch_keys(keys + layout.key_group(next / kGroupRows), layout.key_bytes(n_next),
                           shape.head_dim / lanes_of<D>());
    add_chunk<kHeads>(d, layout, values, rows, fetch_keys, state, out);
    row = next;
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    float* head_out = out + head * (shape.head_dim + 2);
    for (int64_t dim = 0; dim < shape.head_dim; ++dim) head_out[dim] += state.offset[head];
    head_out[shape.head_dim] = state.max[head];
    head_out[shape.head_dim + 1] = state.sum[head];
  }
}

template <int kBits, class D>
void attend_quantised(D d, const AttentionShape& shape, const float* q, const Segment& segment,
                      int64_t begin, int64_t end, float* partial) {
  using Function =
      void (*)(D, const AttentionShape&, const float*, const Segment&, int64_t, int64_t, float*);
  static constexpr Function kBySize[kMaxHeads] = {
      attend_quantised_heads<1, kBits, D>, attend_quantised_heads<2, kBits, D>,
      attend_quantised_heads<3, kBits, D>, attend_quantised_heads<4, kBits, D>,
      attend_quantised_heads<5, kBits, D>, attend_quantised_heads<6, kBits, D>,
      attend_quantised_heads<7, kBits, D>, attend_quantised_heads<8, kBits, D>};
  for (int64_t head = 0; head < shape.group; head += kMaxHeads) {
    const int64_t n_heads = std::min<int64_t>(kMaxHeads, shape.group - head);
    kBySize[n_heads - 1](d, shape, q + head * shape.head_dim, segment, begin, end,
                         partial + head * (shape.head_dim + 2));
  }
}

template <class D>
void attend_quantised_lanes(D d, const AttentionShape& shape, const float* q,
                            const Segment& segment, int64_t begin, int64_t end, float* partial) {
  if (segment.quantised == RowType::kQ8) {
    attend_quantised<8>(d, shape, q, segment, begin, end, partial);
  } else {
    attend_quantised<4>(d, shape, q, segment, begin, end, partial);
  }
}

// attend_block for a quantised segment; `partial` holds empty results.
void attend_quantised_block(const AttentionShape& shape, const float* q, const Segment& segment,
                            int64_t begin, int64_t end, float* partial) {
  if (shape.head_dim % lanes_of<FloatTag>() == 0) {
    attend_quantised_lanes(FloatTag(), shape, q, segment, begin, end, partial);
  } else {
    attend_quantised_lanes(NarrowTag(), shape, q, segment, begin, end, partial);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
