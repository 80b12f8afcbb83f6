// Attention of a group of query heads over the rows of one KV head, and reconstruction scores.
//
// Every function is noexcept, allocates nothing and computes one work item on one thread; results
// depend on the arguments only, never on threads or addresses. Arithmetic is float32 (ref: double).
// A query head group shares one KV head: each row is read once for the whole group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/row_type.h"

namespace ctxzip {

// Rows of one KV head. K and V rows are contiguous, (n_stored, head_dim), of the shape's RowType.
// With `index` null the rows are 0..n_rows-1, else the n_rows ascending rows it lists.
//
// With `quantised` set to kQ8 or kQ4, whatever the shape's type, k and v are a head's keys and
// values in the layout of kernels/quantised_layout.h, with at least n_rows rows, at any even
// address; index is null then.
struct Segment {
  const void* k = nullptr;
  const void* v = nullptr;
  int64_t n_rows = 0;
  const uint32_t* index = nullptr;
  std::optional<RowType> quantised = {};
};

struct AttentionShape {
  RowType row_type = RowType::kF16;  // of segments that are not quantised
  int64_t head_dim = 0;              // of K and queries, a multiple of 8 up to kMaxHeadDim
  int64_t group = 1;                 // query heads per KV head, up to kMaxGroup
  float scale = 1;                   // multiplies q.k
  // Of V and outputs, a multiple of 8; 0: head_dim. V rows lie head_dim elements apart whatever it
  // is: V of latent attention is the first part of K, and both pointers are the same.
  int64_t value_dim = 0;

  int64_t n_value() const { return value_dim > 0 ? value_dim : head_dim; }
};

constexpr int64_t kMaxGroup = 128;
constexpr int64_t kMaxHeadDim = 576;
// Quantised segments: up to this head_dim, value_dim equal to it.
constexpr int64_t kMaxQuantisedDim = 256;
// Decode splits a segment into blocks of this many rows, counted from its start.
constexpr int64_t kRowsPerBlock = 512;
// attend_tile takes at most this many query tokens.
constexpr int64_t kMaxTileTokens = 32;

// Query token t's head g is q[t * token_stride + g * head_dim], outputs likewise with the value
// dimension; strides in floats.
struct Queries {
  const float* data = nullptr;
  int64_t n_tokens = 0;
  int64_t token_stride = 0;
};

// What a tile attends to. Segments are taken in order. In the segment `causal` (-1: none) token t
// sees the first causal_rows + t rows, in all others every row; of these the first hidden[s] + t of
// segment s are hidden (a sliding window that has moved past them; negative: none yet).
struct TileSegments {
  std::span<const Segment> segments;
  int causal = -1;
  int64_t causal_rows = 0;
  // lse (if asked for) covers the first n_lse_segments segments only.
  int n_lse_segments = 0;
  std::span<const int64_t> hidden = {};  // empty: nothing is hidden
};

struct AttentionKernels {
  std::string_view name;  // "ref", "tuned"

  // Bytes of scratch (64-byte aligned) one call of attend_tile, column_max or column_sum needs.
  size_t (*scratch_bytes)(const AttentionShape& shape) noexcept;

  // out (n_tokens, group, n_value) = softmax(scale q.k) v over all segments; zeros for a token
  // that sees no row. `lse` (n_tokens, group), may be null: log-sum-exp of the scaled scores over
  // the first n_lse_segments, -inf when they are empty. `out.data` may be null when only lse is
  // wanted; then only those first segments are read.
  void (*attend_tile)(const AttentionShape& shape, const Queries& q, const TileSegments& over,
                      float* out, int64_t out_token_stride, float* lse,
                      std::byte* scratch) noexcept;

  // One decode token over rows [begin, end) of a segment: partial is (group, n_value + 2) floats,
  // each head's un-normalised output, then its maximum score and its sum of exponentials relative
  // to that maximum (-inf and 0 for an empty range).
  void (*attend_block)(const AttentionShape& shape, const float* q, const Segment& segment,
                       int64_t begin, int64_t end, float* partial) noexcept;

  // Merges n_blocks partials, `block_stride` floats apart, in order into out (group, n_value);
  // zeros when all are empty.
  void (*merge_blocks)(const AttentionShape& shape, const float* partials, int64_t block_stride,
                       int64_t n_blocks, float* out) noexcept;

  // best[c] = max(best[c], max over tokens and group of (scale q.k_c - lse)) for columns
  // c in [begin, end) of `columns`; best has columns.n_rows entries. Tokens whose lse is -inf are
  // skipped. (KVzip's score before exp: arXiv 2505.23416, section 3.3.) `columns` must not be
  // quantised: only rows that may still be evicted are scored.
  void (*column_max)(const AttentionShape& shape, const Queries& q, const float* lse,
                     const Segment& columns, int64_t begin, int64_t end, float* best,
                     std::byte* scratch) noexcept;

  // sums[c] += sum over tokens and group of exp(scale q.k_c - lse), which must not exceed 1 by more
  // than rounding does; otherwise as column_max. (What H2O and SnapKV observe: arXiv 2306.14048,
  // 2404.14469.)
  void (*column_sum)(const AttentionShape& shape, const Queries& q, const float* lse,
                     const Segment& columns, int64_t begin, int64_t end, float* sums,
                     std::byte* scratch) noexcept;
};

// The obvious scalar version in double precision: the oracle of the tests, selectable at run time.
const AttentionKernels& ref_attention_kernels();
// The fastest for this CPU (Highway's dynamic dispatch).
const AttentionKernels& tuned_attention_kernels();
// By name; null for an unknown one.
const AttentionKernels* find_attention_kernels(std::string_view name);

// The instruction set that the tuned kernels run on, for `ctxzip bench` and reports.
std::string_view tuned_target_name();

}  // namespace ctxzip
