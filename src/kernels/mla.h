// Attention of many query heads over rows that all of them share (MLA in absorbed form), products
// of stored rows with such queries, and the scan of a recall index.
//
// A cache row is (latent | branch); a head's score is scale q.row, the value is the row's latent
// part. Heads lie in vector lanes: a row is unpacked once and multiplied with up to 32 heads in
// registers. Every function is noexcept, allocates nothing and computes one work item on one
// thread; results depend on the arguments only. Arithmetic is float32 (ref: double).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/row_type.h"

namespace ctxzip {

struct MlaShape {
  int64_t latent = 0;  // a multiple of 8
  int64_t branch = 0;  // a multiple of 8
  int64_t n_head = 0;
  float scale = 1;  // multiplies q.row

  int64_t row_dim() const { return latent + branch; }
};

// Vectors are padded with zeros to a multiple of this many; so are the columns of all results.
constexpr int64_t kMlaLanes = 16;
constexpr int64_t mla_padded(int64_t n_vectors) {
  return (n_vectors + kMlaLanes - 1) / kMlaLanes * kMlaLanes;
}

// Rows of stored values, f32 or f16. With `index` row u is the index[u]-th that is stored.
struct MlaRows {
  const void* data = nullptr;
  RowType type = RowType::kF16;
  int64_t stride = 0;  // values from one row to the next
  const uint32_t* index = nullptr;
};

// Float vectors as a kernel wants them: made by its pack(), 64-byte aligned, packed_floats() long.
struct PackedVectors {
  const float* data = nullptr;
  int64_t n = 0;
  int64_t dim = 0;
};

constexpr int64_t packed_floats(int64_t n_vectors, int64_t dim) {
  return mla_padded(n_vectors) * dim;
}

// A partial result: (latent + kPartialStats, padded heads) floats. Rows [0, latent) are the sum of
// weight x value, weights being exp(score - maximum); then the maximum score (-inf: no row), the
// sum of weights, and the sum of weight x (score - maximum).
constexpr int64_t kPartialStats = 3;
constexpr int64_t partial_floats(const MlaShape& shape) {
  return (shape.latent + kPartialStats) * mla_padded(shape.n_head);
}

// An index entry for each row: the branch and a sketch of the latent part, both f16, and the norm
// of what the sketch leaves out (VestigeKV, section 4.2).
struct IndexRows {
  const uint16_t* side = nullptr;    // (row, side_dim)
  const uint16_t* sketch = nullptr;  // (row, sketch_dim)
  const float* residual = nullptr;   // (row)
  int64_t side_dim = 0;              // multiples of 8
  int64_t sketch_dim = 0;
};

// What is looked for: entry u scores q.(side_u | sketch_u) + slope x residual_u for each of the
// packed vectors q (dim = side_dim + sketch_dim); it fires when any score reaches its threshold.
// Slopes and thresholds are padded: with 0 and +inf.
struct ScanQueries {
  PackedVectors vectors;
  const float* slope = nullptr;
  const float* threshold = nullptr;
};

// Scan ranges start at a multiple of this many rows.
constexpr int64_t kScanRows = 64;

struct MlaKernels {
  std::string_view name;  // "ref", "tuned"

  // n vectors of dim floats, `stride` floats apart, times `scale`.
  void (*pack)(const float* vectors, int64_t n, int64_t dim, int64_t stride, float scale,
               float* packed) noexcept;

  // out (end - begin, padded) = row.vector for rows [begin, end), of which the first vectors.dim
  // values are used.
  void (*products)(const PackedVectors& vectors, const MlaRows& rows, int64_t begin, int64_t end,
                   float* out) noexcept;

  // One token's heads over rows [begin, end): `partial` is written. `queries` are (n_head, row_dim)
  // packed with the shape's scale.
  void (*attend)(const MlaShape& shape, const PackedVectors& queries, const MlaRows& rows,
                 int64_t begin, int64_t end, float* partial) noexcept;

  // Merges n partials in order into dimensions [first_dim, first_dim + n_dims) of out (n_head,
  // latent); zeros when all are empty.
  void (*merge)(const MlaShape& shape, const float* const* partials, int64_t n, int64_t first_dim,
                int64_t n_dims, float* out) noexcept;

  // Sets bit (row % 64) of fired[row / 64] for the entries of [begin, end) that fire and clears
  // the others of those words.
  void (*scan)(const ScanQueries& queries, const IndexRows& index, int64_t begin, int64_t end,
               uint64_t* fired) noexcept;

  // out (end - begin, padded): the scores that `scan` compares, bit for bit.
  void (*scan_scores)(const ScanQueries& queries, const IndexRows& index, int64_t begin,
                      int64_t end, float* out) noexcept;
};

// Maximum score, log of the sum of exponentials and entropy (nats) of the softmax that n partials
// describe together; any output may be null, each is (n_head). Empty: -inf, -inf, 0.
void mla_stats(const MlaShape& shape, const float* const* partials, int64_t n, float* max,
               float* log_sum, float* entropy) noexcept;

// The obvious scalar version in double precision: the oracle of the tests, selectable at run time.
const MlaKernels& ref_mla_kernels();
// The fastest for this CPU (Highway's dynamic dispatch).
const MlaKernels& tuned_mla_kernels();

struct MlaTarget {
  std::string_view target;
  MlaKernels kernels;
};
// Every compiled instruction set that this CPU can run, best first; for tests. Not thread-safe: it
// overrides Highway's choice of target for a moment.
std::vector<MlaTarget> tuned_mla_targets();

}  // namespace ctxzip
