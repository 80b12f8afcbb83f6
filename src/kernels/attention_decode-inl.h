// Decode: one token's query heads over a range of rows, compiled once per Highway target.
//
// Rows are taken in chunks that stay in the first-level cache: scores of the chunk for up to eight
// heads, one softmax step, then the weighted sum of V. Heads are taken in one or two parts whose
// accumulators fit in registers; the second finds the chunk in the cache. While K is multiplied, V
// of the chunk is fetched from memory, and while V is, the next chunk's K.
#if defined(CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_
#undef CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_
#else
#define CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_
#endif

#include <algorithm>
#include <iterator>
#include <limits>

#include "kernels/attention_latent-inl.h"
#include "kernels/attention_math-inl.h"
#include "kernels/attention_quantised-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

// A chunk is this many bytes of K rows, and at most kMaxChunkRows rows: its K and V and the next
// chunk's K fit in 32 KiB.
constexpr int64_t kChunkBytes = 8 << 10;
constexpr int64_t kMaxChunkRows = 96;
// Rows are scored up to this many at once, so a chunk is rounded up to a multiple.
constexpr int64_t kRowMultiple = 12;

constexpr int kAccumulators = kManyRegisters ? 24 : 12;

// Heads [kFirst, kFirst + kHeads) of kAll: a part has one accumulator for each of its heads and
// each of kRows rows.
template <int kAllHeads>
struct Parts {
  // Weights of a row are kWidth floats apart.
  static constexpr int kWidth = kAllHeads <= 2 ? kAllHeads : kAllHeads <= 4 ? 4 : 8;
  static constexpr int kFirstHeads = kAllHeads <= 6 ? kAllHeads : 4;
  static constexpr int kSecondHeads = kAllHeads - kFirstHeads;
};

constexpr int rows_at_once(int heads) {
  for (const int rows : {12, 6, 4, 3, 2}) {
    if (rows * heads <= kAccumulators) return rows;
  }
  return 1;
}

constexpr int vectors_at_once(int heads) {
  for (const int vectors : {8, 4, 3, 2}) {
    if (vectors * heads <= kAccumulators) return vectors;
  }
  return 1;
}

struct DecodeState {
  alignas(64) float q[kMaxHeads * kMaxHeadDim];  // (part, dim / lanes, head in part, lane), scaled
  // (row, width): scores, then exponentials; room for a padded vector behind the last row
  alignas(64) float weights[(kMaxChunkRows + kRowMultiple) * kMaxHeads];
  float max[kMaxHeads];
  float sum[kMaxHeads];
};

// Stores acc[row][head] summed over lanes to weights[row * kWidth + head]; may write other lanes
// below kWidth, which softmax_chunk ignores.
template <int kHeads, int kRows, int kWidth, class D>
HWY_INLINE void store_scores(D d, const hn::Vec<D> (&acc)[kRows][kHeads], float* weights) {
  const auto store = [&](const hn::Vec<D>& a, const hn::Vec<D>& b, const hn::Vec<D>& c,
                         const hn::Vec<D>& e, float* first)
                         HWY_ATTR { store_four_sums(d, a, b, c, e, first, first + 2); };
  if constexpr (kHeads <= 2) {
    static_assert(kWidth == kHeads && kRows * kHeads % 4 == 0);
    const auto at = [&](int flat) HWY_ATTR { return acc[flat / kHeads][flat % kHeads]; };
    for (int flat = 0; flat < kRows * kHeads; flat += 4) {
      store(at(flat), at(flat + 1), at(flat + 2), at(flat + 3), weights + flat);
    }
  } else {
    for (int row = 0; row < kRows; ++row) {
      const auto& a = acc[row];
      store(a[0], a[1], a[2], a[kHeads > 3 ? 3 : 2], weights + row * kWidth);
      if constexpr (kHeads == 5) store(a[4], a[4], a[4], a[4], weights + row * kWidth + 4);
    }
  }
  if constexpr (kHeads == 6) {
    static_assert(kRows % 2 == 0);
    for (int row = 0; row < kRows; row += 2) {
      float* first = weights + row * kWidth + 4;
      store_four_sums(d, acc[row][4], acc[row][5], acc[row + 1][4], acc[row + 1][5], first,
                      first + kWidth);
    }
  }
}

// weights[row][head] = q_head * row. Keeps the shorter of the two operand lists in registers.
template <int kHeads, int kRows, int kWidth, class D, class T>
HWY_INLINE void score_rows(D d, const T* const* rows, const float* q, int64_t head_dim,
                           float* weights) {
  constexpr int64_t kLanes = lanes_of<D>();
  hn::Vec<D> acc[kRows][kHeads];
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) acc[row][head] = hn::Zero(d);
  }
  for (int64_t dim = 0; dim < head_dim; dim += kLanes) {
    if constexpr (kRows < kHeads) {
      hn::Vec<D> k[kRows];
      for (int row = 0; row < kRows; ++row) k[row] = load_row(d, rows[row] + dim);
      for (int head = 0; head < kHeads; ++head) {
        auto query = hn::Load(d, q + head * kLanes);
        keep_in_register(query);
        for (int row = 0; row < kRows; ++row) {
          acc[row][head] = hn::MulAdd(k[row], query, acc[row][head]);
        }
      }
    } else {
      hn::Vec<D> query[kHeads];
      for (int head = 0; head < kHeads; ++head) query[head] = hn::Load(d, q + head * kLanes);
      for (int row = 0; row < kRows; ++row) {
        const auto k = load_row(d, rows[row] + dim);
        for (int head = 0; head < kHeads; ++head) {
          acc[row][head] = hn::MulAdd(k, query[head], acc[row][head]);
        }
      }
    }
    q += kHeads * kLanes;
  }
  store_scores<kHeads, kRows, kWidth>(d, acc, weights);
}

// Rows that a part of the work fetches for what comes after it.
template <class T>
struct RowsAhead {
  const T* const* rows;
  int64_t n;

  // The first or the second of two parts that take kFirst and kSecond heads.
  template <int kFirst, int kSecond>
  RowsAhead part(bool second) const {
    const int64_t n_first = n * kFirst / (kFirst + kSecond);
    return second ? RowsAhead{rows + n_first, n - n_first} : RowsAhead{rows, n_first};
  }
};

// Scores of n rows, rounded up to the rows at once. Meanwhile fetches the rows ahead, evenly: the
// memory has no more lines on their way at once than it can take.
template <int kHeads, int kWidth, class D, class T>
HWY_NOINLINE void score_part(D d, const T* const* rows, int64_t n, const float* q, int64_t head_dim,
                             RowsAhead<T> ahead, float* weights) {
  constexpr int kRows = rows_at_once(kHeads);
  int64_t fetched = 0;
  for (int64_t row = 0; row < n; row += kRows) {
    const int64_t due = std::min(ahead.n, ahead.n * (row + kRows) / n);
    for (; fetched < due; ++fetched) prefetch_row(ahead.rows[fetched], head_dim);
    score_rows<kHeads, kRows, kWidth>(d, rows + row, q, head_dim, weights + row * kWidth);
  }
}

// Where the weighted sum of V reads and writes; meanwhile the rows of `ahead` are fetched.
template <class T>
struct ValueRows {
  const T* const* rows;
  int64_t n_rows;
  RowsAhead<T> ahead;
  int64_t head_dim;      // of a row
  int64_t n_value;       // of these, from the start, that are summed
  const float* weights;  // (row, width)
  float* out;            // (head, out_stride)
  int64_t out_stride;
};

// out[head][dim, kVectors vectors) += sum over rows of weights[row][head] * row.
template <int kHeads, int kVectors, int kWidth, class D, class T>
HWY_INLINE void add_strip(D d, const ValueRows<T>& values, int64_t dim) {
  constexpr int64_t kLanes = lanes_of<D>();
  constexpr int64_t kStrip = kVectors * kLanes;
  float* out = values.out + dim;
  hn::Vec<D> acc[kHeads][kVectors];
  for (int head = 0; head < kHeads; ++head) {
    for (int vector = 0; vector < kVectors; ++vector) {
      acc[head][vector] = hn::LoadU(d, out + head * values.out_stride + vector * kLanes);
    }
  }
  const float* weights = values.weights;
  // Every strip fetches its share of the rows ahead, evenly.
  const int64_t n_ahead = values.ahead.n;
  int64_t fetched = n_ahead * dim / values.n_value;
  const int64_t n_fetched = n_ahead * (dim + kStrip) / values.n_value;
  const int64_t period =
      std::max<int64_t>(1, values.n_rows / std::max<int64_t>(1, n_fetched - fetched));
  int64_t next_fetch = 0;
  for (int64_t row = 0; row < values.n_rows; ++row, weights += kWidth) {
    const T* from = values.rows[row] + dim;
    if (row == next_fetch && fetched < n_fetched) {
      prefetch_row(values.ahead.rows[fetched++], values.head_dim);
      next_fetch += period;
    }
    if constexpr (kVectors < kHeads) {
      hn::Vec<D> v[kVectors];
      for (int vector = 0; vector < kVectors; ++vector) {
        v[vector] = load_row(d, from + vector * kLanes);
      }
      for (int head = 0; head < kHeads; ++head) {
        const auto weight = hn::Set(d, weights[head]);
        for (int vector = 0; vector < kVectors; ++vector) {
          acc[head][vector] = hn::MulAdd(v[vector], weight, acc[head][vector]);
        }
      }
    } else {
      hn::Vec<D> weight[kHeads];
      for (int head = 0; head < kHeads; ++head) weight[head] = hn::Set(d, weights[head]);
      for (int vector = 0; vector < kVectors; ++vector) {
        const auto v = load_row(d, from + vector * kLanes);
        for (int head = 0; head < kHeads; ++head) {
          acc[head][vector] = hn::MulAdd(v, weight[head], acc[head][vector]);
        }
      }
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    for (int vector = 0; vector < kVectors; ++vector) {
      hn::StoreU(acc[head][vector], d, out + head * values.out_stride + vector * kLanes);
    }
  }
}

// Dimensions [dim, n_value) in strips of kVectors vectors, then narrower ones.
template <int kHeads, int kVectors, int kWidth, class D, class T>
HWY_INLINE void add_strips(D d, const ValueRows<T>& values, int64_t dim) {
  constexpr int64_t kLanes = lanes_of<D>();
  // Four vectors are better taken as two and two than as three and one, which waits for its sums.
  constexpr int64_t kLeave = kVectors == 3 ? 4 * kLanes : -1;
  for (; dim + kVectors * kLanes <= values.n_value && values.n_value - dim != kLeave;
       dim += kVectors * kLanes) {
    add_strip<kHeads, kVectors, kWidth>(d, values, dim);
  }
  if constexpr (kVectors > 1) {
    constexpr int kNext = kVectors == 3 ? 2 : kVectors / 2;
    if (dim < values.n_value) add_strips<kHeads, kNext, kWidth>(d, values, dim);
  }
}

template <int kHeads, int kWidth, class D, class T>
HWY_NOINLINE void add_part(D d, const ValueRows<T>& values) {
  add_strips<kHeads, vectors_at_once(kHeads), kWidth>(d, values, 0);
}

// Turns the scores of n rows into exponentials relative to each head's running maximum. A vector
// holds the heads of several rows, or several vectors the heads of one row.
template <int kHeads, int kWidth>
HWY_NOINLINE void softmax_chunk(int64_t n, int64_t n_value, DecodeState& state, float* out,
                                int64_t out_stride) {
  const FloatTag d;
  constexpr int64_t kLanes = lanes_of<FloatTag>();
  constexpr int64_t kPeriod = HWY_MAX(kWidth, kLanes);
  constexpr int64_t kVectors = kPeriod / kLanes;
  const int64_t n_floats = n * kWidth;
  const int64_t padded = (n_floats + kPeriod - 1) / kPeriod * kPeriod;
  std::fill(state.weights + n_floats, state.weights + padded, kMinusInfinity);

  alignas(64) float lanes[kPeriod];
  hn::Vec<FloatTag> fold[kVectors];
  for (auto& vector : fold) vector = hn::Set(d, kMinusInfinity);
  for (int64_t at = 0; at < padded; at += kPeriod) {
    for (int64_t vector = 0; vector < kVectors; ++vector) {
      fold[vector] = hn::Max(fold[vector], hn::Load(d, state.weights + at + vector * kLanes));
    }
  }
  for (int64_t vector = 0; vector < kVectors; ++vector) {
    hn::Store(fold[vector], d, lanes + vector * kLanes);
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    float max = state.max[head];
    for (int64_t at = head; at < kPeriod; at += kWidth) max = std::max(max, lanes[at]);
    if (max > state.max[head]) {
      const float factor = exp_non_positive(state.max[head] - max);
      state.max[head] = max;
      state.sum[head] *= factor;
      float* head_out = out + head * out_stride;
      const NarrowTag narrow;
      for (int64_t dim = 0; dim < n_value; dim += lanes_of<NarrowTag>()) {
        hn::StoreU(hn::Mul(hn::LoadU(narrow, head_out + dim), hn::Set(narrow, factor)), narrow,
                   head_out + dim);
      }
    }
  }

  // A head whose scores are all -inf has no finite maximum to subtract.
  for (int64_t at = 0; at < kPeriod; ++at) {
    const int64_t head = at % kWidth;
    // Lanes of no head become 0.
    lanes[at] = head < kHeads ? std::max(state.max[head], std::numeric_limits<float>::lowest())
                              : std::numeric_limits<float>::infinity();
  }
  hn::Vec<FloatTag> shift[kVectors];
  for (int64_t vector = 0; vector < kVectors; ++vector) {
    shift[vector] = hn::Load(d, lanes + vector * kLanes);
    fold[vector] = hn::Zero(d);
  }
  for (int64_t at = 0; at < padded; at += kPeriod) {
    for (int64_t vector = 0; vector < kVectors; ++vector) {
      float* weights = state.weights + at + vector * kLanes;
      const auto weight = exp_non_positive(d, hn::Sub(hn::Load(d, weights), shift[vector]));
      hn::Store(weight, d, weights);
      fold[vector] = hn::Add(fold[vector], weight);
    }
  }
  for (int64_t vector = 0; vector < kVectors; ++vector) {
    hn::Store(fold[vector], d, lanes + vector * kLanes);
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    for (int64_t at = head; at < kPeriod; at += kWidth) state.sum[head] += lanes[at];
  }
}

template <class D>
float* pack_part(D d, const float* q, int64_t n_heads, int64_t head_dim, float scale,
                 float* packed) {
  constexpr int64_t kLanes = lanes_of<D>();
  for (int64_t dim = 0; dim < head_dim; dim += kLanes) {
    for (int64_t head = 0; head < n_heads; ++head) {
      hn::Store(hn::Mul(hn::LoadU(d, q + head * head_dim + dim), hn::Set(d, scale)), d, packed);
      packed += kLanes;
    }
  }
  return packed;
}

// Pointers to the rows of one chunk.
template <class T>
struct ChunkRows {
  const T* k[kMaxChunkRows + kRowMultiple];
  const T* v[kMaxChunkRows + kRowMultiple];
  int64_t n = 0;

  // As many of the rows [begin, end) as a chunk has.
  void list(const Segment& segment, int64_t head_dim, int64_t begin, int64_t end) {
    constexpr int64_t kBytes = sizeof(T);
    const int64_t wanted = std::clamp(kChunkBytes / (kBytes * head_dim) / kRowMultiple, int64_t{1},
                                      kMaxChunkRows / kRowMultiple) *
                           kRowMultiple;
    n = std::clamp<int64_t>(end - begin, 0, wanted);
    if (n == 0) return;
    list_rows(segment.k, segment.index, head_dim, begin, n, n + kRowMultiple, k);
    list_rows(segment.v, segment.index, head_dim, begin, n, n, v);
  }
};

// kHeads heads over rows [begin, end); out is (kHeads, n_value + 2).
template <int kHeads, class D, class T>
void attend_heads(D d, const AttentionShape& shape, const float* q, const Segment& segment,
                  int64_t begin, int64_t end, float* out) {
  using P = Parts<kHeads>;
  constexpr int kWidth = P::kWidth;
  const int64_t head_dim = shape.head_dim;
  const int64_t n_value = shape.n_value();
  const int64_t stride = n_value + 2;
  DecodeState state;
  std::fill_n(state.max, kMaxHeads, kMinusInfinity);
  std::fill_n(state.sum, kMaxHeads, 0.0f);
  if constexpr (kWidth != kHeads)
    std::fill(std::begin(state.weights), std::end(state.weights), 0.0f);
  float* second_q = pack_part(d, q, P::kFirstHeads, head_dim, shape.scale, state.q);
  if constexpr (P::kSecondHeads > 0) {
    pack_part(d, q + P::kFirstHeads * head_dim, P::kSecondHeads, head_dim, shape.scale, second_q);
  }
  ChunkRows<T> chunks[2];
  chunks[0].list(segment, head_dim, begin, end);
  for (int64_t first = begin, turn = 0; first < end; turn = 1 - turn) {
    const ChunkRows<T>& chunk = chunks[turn];
    ChunkRows<T>& next = chunks[1 - turn];
    const RowsAhead<T> v = {chunk.v, chunk.n};
    score_part<P::kFirstHeads, kWidth>(d, chunk.k, chunk.n, state.q, head_dim,
                                       v.template part<P::kFirstHeads, P::kSecondHeads>(false),
                                       state.weights);
    if constexpr (P::kSecondHeads > 0) {
      score_part<P::kSecondHeads, kWidth>(d, chunk.k, chunk.n, second_q, head_dim,
                                          v.template part<P::kFirstHeads, P::kSecondHeads>(true),
                                          state.weights + P::kFirstHeads);
    }
    softmax_chunk<kHeads, kWidth>(chunk.n, n_value, state, out, stride);
    first += chunk.n;
    // Behind the last chunk come the rows of the caller's next block.
    next.list(segment, head_dim, first, first < end ? end : segment.n_rows);
    const RowsAhead<T> k = {next.k, next.n};
    ValueRows<T> values = {
        chunk.v,  chunk.n, k.template part<P::kFirstHeads, P::kSecondHeads>(false),
        head_dim, n_value, state.weights,
        out,      stride};
    add_part<P::kFirstHeads, kWidth>(d, values);
    if constexpr (P::kSecondHeads > 0) {
      values.ahead = k.template part<P::kFirstHeads, P::kSecondHeads>(true);
      values.weights += P::kFirstHeads;
      values.out += P::kFirstHeads * stride;
      add_part<P::kSecondHeads, kWidth>(d, values);
    }
  }
  for (int64_t head = 0; head < kHeads; ++head) {
    out[head * stride + n_value] = state.max[head];
    out[head * stride + n_value + 1] = state.sum[head];
  }
}

template <class D, class T>
void attend_rows(D d, const AttentionShape& shape, const float* q, const Segment& segment,
                 int64_t begin, int64_t end, float* partial) {
  using Function =
      void (*)(D, const AttentionShape&, const float*, const Segment&, int64_t, int64_t, float*);
  static constexpr Function kBySize[kMaxHeads] = {
      attend_heads<1, D, T>, attend_heads<2, D, T>, attend_heads<3, D, T>, attend_heads<4, D, T>,
      attend_heads<5, D, T>, attend_heads<6, D, T>, attend_heads<7, D, T>, attend_heads<8, D, T>};
  for (int64_t head = 0; head < shape.group; head += kMaxHeads) {
    const int64_t n_heads = std::min<int64_t>(kMaxHeads, shape.group - head);
    kBySize[n_heads - 1](d, shape, q + head * shape.head_dim, segment, begin, end,
                         partial + head * (shape.n_value() + 2));
  }
}

template <class D>
void attend_rows_of_type(D d, const AttentionShape& shape, const float* q, const Segment& segment,
                         int64_t begin, int64_t end, float* partial) {
  if (shape.row_type == RowType::kF32) {
    attend_rows<D, float>(d, shape, q, segment, begin, end, partial);
  } else {
    attend_rows<D, uint16_t>(d, shape, q, segment, begin, end, partial);
  }
}

void attend_block(const AttentionShape& shape, const float* q, const Segment& segment,
                  int64_t begin, int64_t end, float* partial) noexcept {
  if (has_latent_rows(shape, segment)) {
    return attend_latent_block(shape, q, segment, begin, end, partial);
  }
  for (int64_t head = 0; head < shape.group; ++head) {
    float* head_out = partial + head * (shape.n_value() + 2);
    std::fill_n(head_out, shape.n_value(), 0.0f);
    head_out[shape.n_value()] = kMinusInfinity;
    head_out[shape.n_value() + 1] = 0;
  }
  if (segment.quantised) {
    attend_quantised_block(shape, q, segment, begin, end, partial);
  } else if (shape.head_dim % lanes_of<FloatTag>() == 0 &&
             shape.n_value() % lanes_of<FloatTag>() == 0) {
    attend_rows_of_type(FloatTag(), shape, q, segment, begin, end, partial);
  } else {
    attend_rows_of_type(NarrowTag(), shape, q, segment, begin, end, partial);
  }
}

void merge_blocks(const AttentionShape& shape, const float* partials, int64_t block_stride,
                  int64_t n_blocks, float* out) noexcept {
  const NarrowTag d;
  const int64_t n_value = shape.n_value();
  for (int64_t head = 0; head < shape.group; ++head) {
    const float* first = partials + head * (n_value + 2);
    float* head_out = out + head * n_value;
    std::fill_n(head_out, n_value, 0.0f);
    float max = kMinusInfinity;
    for (int64_t block = 0; block < n_blocks; ++block) {
      max = std::max(max, first[block * block_stride + n_value]);
    }
    if (max == kMinusInfinity) continue;
    float sum = 0;
    for (int64_t block = 0; block < n_blocks; ++block) {
      const float* partial = first + block * block_stride;
      const float factor = exp_non_positive(partial[n_value] - max);
      const auto scale = hn::Set(d, factor);
      sum += factor * partial[n_value + 1];
      for (int64_t dim = 0; dim < n_value; dim += lanes_of<NarrowTag>()) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d, partial + dim), scale, hn::LoadU(d, head_out + dim)), d,
                   head_out + dim);
      }
    }
    for (int64_t dim = 0; dim < n_value; ++dim) head_out[dim] /= sum;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
