// Decode: one token's query heads over a range of rows, compiled once per Highway target.
//
// Rows are taken in chunks that stay in the first-level cache: scores of the chunk for every head,
// one softmax step, then the weighted sum of V. Heads are taken in parts whose accumulators fit in
// registers; every part after the first finds the chunk in the cache.
#if defined(CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_
#undef CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_
#else
#define CTXZIP_KERNELS_ATTENTION_DECODE_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "kernels/attention_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ctxzip {
namespace HWY_NAMESPACE {

// Rows scored between two register reductions.
constexpr int64_t kDotRows = 12;
constexpr int64_t kChunkRows = 96;
static_assert(kChunkRows % kDotRows == 0);

constexpr int kAccumulators = kManyRegisters ? 24 : 12;
constexpr int kMaxPartHeads = 6;

constexpr int rows_at_once(int heads) {
  for (const int rows : {12, 6, 4, 3, 2}) {
    if (rows * heads <= kAccumulators) return rows;
  }
  return 1;
}

constexpr int vectors_at_once(int heads) {
  for (const int vectors : {8, 4, 2}) {
    if (vectors * heads <= kAccumulators) return vectors;
  }
  return 1;
}

constexpr int64_t next_part(int64_t heads_left) {
  if (heads_left <= kMaxPartHeads) return heads_left;
  return heads_left <= 8 ? 4 : kMaxPartHeads;
}

struct DecodeScratch {
  // (part, dim / lanes, head in part, lane), scaled
  alignas(64) float q[kMaxGroup * kMaxHeadDim];
  alignas(64) float weights[kMaxGroup][kChunkRows];  // scores, then exponentials
};

// sums[row][head] = q_head * row, one partial sum per lane.
template <int kHeads, int kRows, class D, class T>
HWY_INLINE void dot_rows(D d, const T* const* rows, const float* q, int64_t head_dim, float* sums) {
  constexpr int64_t kLanes = lanes_of<D>();
  hn::Vec<D> acc[kRows][kHeads];
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) acc[row][head] = hn::Zero(d);
  }
  for (int64_t dim = 0; dim < head_dim; dim += kLanes) {
    hn::Vec<D> k[kRows];
    for (int row = 0; row < kRows; ++row) k[row] = load_row(d, rows[row] + dim);
    for (int head = 0; head < kHeads; ++head) {
      const auto query = hn::Load(d, q + head * kLanes);
      for (int row = 0; row < kRows; ++row) {
        acc[row][head] = hn::MulAdd(k[row], query, acc[row][head]);
      }
    }
    q += kHeads * kLanes;
  }
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      hn::Store(acc[row][head], d, sums + (row * kHeads + head) * kLanes);
    }
  }
}

// weights[head][row] = q_head * row for n_rows rows, rounded up to kDotRows.
template <int kHeads, class D, class T>
void score_part(D d, const T* const* rows, int64_t n_rows, const float* q, int64_t head_dim,
                float (*weights)[kChunkRows]) {
  constexpr int64_t kLanes = lanes_of<D>();
  constexpr int kRows = rows_at_once(kHeads);
  alignas(64) float sums[kDotRows * kHeads * kLanes];
  for (int64_t first = 0; first < n_rows; first += kDotRows) {
    for (int64_t row = 0; row < kDotRows; row += kRows) {
      dot_rows<kHeads, kRows>(d, rows + first + row, q, head_dim, sums + row * kHeads * kLanes);
    }
    for (int64_t head = 0; head < kHeads; ++head) {
      for (int64_t row = 0; row < kDotRows; row += 4) {
        sum_four<kLanes>(sums + (row * kHeads + head) * kLanes, kHeads * kLanes,
                         weights[head] + first + row);
      }
    }
  }
}

// out[head][0, kVectors vectors) += sum over rows of weights[head][row] * row.
template <int kHeads, int kVectors, class D, class T>
HWY_INLINE void add_strip(D d, const T* const* rows, int64_t n_rows, int64_t dim,
                          const float (*weights)[kChunkRows], float* out, int64_t out_stride) {
  constexpr int64_t kLanes = lanes_of<D>();
  hn::Vec<D> acc[kHeads][kVectors];
  for (int head = 0; head < kHeads; ++head) {
    for (int vector = 0; vector < kVectors; ++vector) {
      acc[head][vector] = hn::LoadU(d, out + head * out_stride + dim + vector * kLanes);
    }
  }
  for (int64_t row = 0; row < n_rows; ++row) {
    hn::Vec<D> v[kVectors];
    for (int vector = 0; vector < kVectors; ++vector) {
      v[vector] = load_row(d, rows[row] + dim + vector * kLanes);
    }
    for (int head = 0; head < kHeads; ++head) {
      const auto weight = hn::Set(d, weights[head][row]);
      for (int vector = 0; vector < kVectors; ++vector) {
        acc[head][vector] = hn::MulAdd(v[vector], weight, acc[head][vector]);
      }
    }
  }
  for (int head = 0; head < kHeads; ++head) {
    for (int vector = 0; vector < kVectors; ++vector) {
      hn::StoreU(acc[head][vector], d, out + head * out_stride + dim + vector * kLanes);
    }
  }
}

// Covers dimensions [dim, head_dim) with strips of kVectors vectors, then narrower ones.
template <int kHeads, int kVectors, class D, class T>
HWY_INLINE void add_strips(D d, const T* const* rows, int64_t n_rows, int64_t dim, int64_t head_dim,
                           const float (*weights)[kChunkRows], float* out, int64_t out_stride) {
  constexpr int64_t kWidth = kVectors * lanes_of<D>();
  for (; dim + kWidth <= head_dim; dim += kWidth) {
    add_strip<kHeads, kVectors>(d, rows, n_rows, dim, weights, out, out_stride);
  }
  if constexpr (kVectors > 1) {
    if (dim < head_dim) {
      add_strips<kHeads, kVectors / 2>(d, rows, n_rows, dim, head_dim, weights, out, out_stride);
    }
  }
}

template <int kHeads, class D, class T>
void add_part(D d, const T* const* rows, int64_t n_rows, int64_t head_dim,
              const float (*weights)[kChunkRows], float* out, int64_t out_stride) {
  add_strips<kHeads, vectors_at_once(kHeads)>(d, rows, n_rows, 0, head_dim, weights, out,
                                              out_stride);
}

// Calls body with std::integral_constant<int, n>.
template <class Body>
HWY_INLINE void with_part_size(int64_t n, const Body& body) {
  switch (n) {
    case 1:
      return body(std::integral_constant<int, 1>());
    case 2:
      return body(std::integral_constant<int, 2>());
    case 3:
      return body(std::integral_constant<int, 3>());
    case 4:
      return body(std::integral_constant<int, 4>());
    case 5:
      return body(std::integral_constant<int, 5>());
    default:
      return body(std::integral_constant<int, kMaxPartHeads>());
  }
}

// Turns one head's scores into exponentials relative to its running maximum.
template <class D>
HWY_INLINE void softmax_step(D d, float* weights, int64_t n_rows, int64_t head_dim,
                             float* head_out) {
  float& max = head_out[head_dim];
  float& sum = head_out[head_dim + 1];
  const int64_t padded = pad_scores(weights, n_rows);
  const float new_max = max_of(weights, padded, max);
  if (new_max > max) {
    const float factor = exp_non_positive(max - new_max);
    const auto scale = hn::Set(d, factor);
    for (int64_t dim = 0; dim < head_dim; dim += lanes_of<D>()) {
      hn::StoreU(hn::Mul(hn::LoadU(d, head_out + dim), scale), d, head_out + dim);
    }
    sum *= factor;
    max = new_max;
  }
  sum += exponentiate(weights, padded, max);
}

template <class D>
void pack_decode_queries(D d, const AttentionShape& shape, const float* q, float* packed) {
  constexpr int64_t kLanes = lanes_of<D>();
  const auto scale = hn::Set(d, shape.scale);
  for (int64_t first = 0; first < shape.group;) {
    const int64_t heads = next_part(shape.group - first);
    for (int64_t dim = 0; dim < shape.head_dim; dim += kLanes) {
      for (int64_t head = first; head < first + heads; ++head) {
        hn::Store(hn::Mul(hn::LoadU(d, q + head * shape.head_dim + dim), scale), d, packed);
        packed += kLanes;
      }
    }
    first += heads;
  }
}

template <class D, class T>
void attend_rows(D d, const AttentionShape& shape, const float* q, const Segment& segment,
                 int64_t begin, int64_t end, float* partial) {
  const int64_t head_dim = shape.head_dim;
  const int64_t out_stride = head_dim + 2;
  DecodeScratch scratch;
  pack_decode_queries(d, shape, q, scratch.q);
  const T* k_rows[kChunkRows];
  const T* v_rows[kChunkRows];
  for (int64_t first = begin; first < end; first += kChunkRows) {
    const int64_t n = std::min(kChunkRows, end - first);
    const int64_t padded = (n + kDotRows - 1) / kDotRows * kDotRows;
    list_rows(segment.k, segment.index, head_dim, first, n, padded, k_rows);
    list_rows(segment.v, segment.index, head_dim, first, n, n, v_rows);
    for (int64_t head = 0; head < shape.group;) {
      const int64_t heads = next_part(shape.group - head);
      with_part_size(heads, [&](auto size) HWY_ATTR {
        score_part<size()>(d, k_rows, n, scratch.q + head * head_dim, head_dim,
                           scratch.weights + head);
      });
      head += heads;
    }
    for (int64_t head = 0; head < shape.group; ++head) {
      softmax_step(d, scratch.weights[head], n, head_dim, partial + head * out_stride);
    }
    for (int64_t head = 0; head < shape.group;) {
      const int64_t heads = next_part(shape.group - head);
      with_part_size(heads, [&](auto size) HWY_ATTR {
        add_part<size()>(d, v_rows, n, head_dim, scratch.weights + head,
                         partial + head * out_stride, out_stride);
      });
      head += heads;
    }
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
  for (int64_t head = 0; head < shape.group; ++head) {
    float* head_out = partial + head * (shape.head_dim + 2);
    std::fill_n(head_out, shape.head_dim, 0.0f);
    head_out[shape.head_dim] = kMinusInfinity;
    head_out[shape.head_dim + 1] = 0;
  }
  if (shape.head_dim % lanes_of<FloatTag>() == 0) {
    attend_rows_of_type(FloatTag(), shape, q, segment, begin, end, partial);
  } else {
    attend_rows_of_type(NarrowTag(), shape, q, segment, begin, end, partial);
  }
}

void merge_blocks(const AttentionShape& shape, const float* partials, int64_t n_blocks,
                  float* out) noexcept {
  const NarrowTag d;
  const int64_t head_dim = shape.head_dim;
  const int64_t block_floats = shape.group * (head_dim + 2);
  for (int64_t head = 0; head < shape.group; ++head) {
    const float* first = partials + head * (head_dim + 2);
    float* head_out = out + head * head_dim;
    std::fill_n(head_out, head_dim, 0.0f);
    float max = kMinusInfinity;
    for (int64_t block = 0; block < n_blocks; ++block) {
      max = std::max(max, first[block * block_floats + head_dim]);
    }
    if (max == kMinusInfinity) continue;
    float sum = 0;
    for (int64_t block = 0; block < n_blocks; ++block) {
      const float* partial = first + block * block_floats;
      const float factor = exp_non_positive(partial[head_dim] - max);
      const auto scale = hn::Set(d, factor);
      sum += factor * partial[head_dim + 1];
      for (int64_t dim = 0; dim < head_dim; dim += lanes_of<NarrowTag>()) {
        hn::StoreU(hn::MulAdd(hn::LoadU(d, partial + dim), scale, hn::LoadU(d, head_out + dim)), d,
                   head_out + dim);
      }
    }
    for (int64_t dim = 0; dim < head_dim; ++dim) head_out[dim] /= sum;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip
HWY_AFTER_NAMESPACE();

#endif  // toggle
