// The recall index of archived rows and what it guarantees (VestigeKV, section 4.2, Lemma 2).
//
// With V (rank, latent) an entry holds the branch r and sketch V c as f16 and the norm of c - V^T
// sketch, rounded up. A query q = (q_c | q_r) scores q_r.r + (V q_c).sketch; what that misses of
// the true score is at most |q_c - V^T V q_c| times the entry's norm, and terms for every rounding
// on the way. All query quantities here include the attention's scale.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/memory.h"
#include "kernels/mla.h"

namespace ctxzip {

// Index entries share their rounding errors in blocks of this many rows.
constexpr int64_t kErrorRows = 256;

// V: orthonormal rows, rounded to float. Immutable once made.
class SketchBasis {
 public:
  // rows (rank, latent), orthonormal up to rounding; 0 < rank < latent, a multiple of 8. Throws
  // Error{kInvalidArgument} for a rank that does not fit.
  SketchBasis(const MlaKernels& kernels, const MlaShape& shape, int64_t rank,
              std::span<const float> rows);
  // The first `rank` coordinates.
  static SketchBasis identity(const MlaKernels& kernels, const MlaShape& shape, int64_t rank);

  int64_t rank() const { return rank_; }
  int64_t latent() const { return latent_; }
  // The Frobenius norm of V V^T - I.
  double defect() const { return defect_; }
  // (rank, row_dim), zero in the branch; (latent, rank); both plain and as packed vectors.
  MlaRows rows() const;
  MlaRows columns() const;
  PackedVectors packed_rows() const;     // of the latent part
  PackedVectors packed_columns() const;  // latent vectors of rank values

 private:
  int64_t rank_;
  int64_t latent_;
  int64_t row_dim_;
  double defect_ = 0;
  Mapping memory_;  // rows, columns, packed rows, packed columns; floats
  int64_t offsets_[4] = {};

  const float* part(int at) const;
};

// Upper limits that hold for all entries of kErrorRows rows.
struct EntryErrors {
  float sketch = 0;       // |V c - sketch|
  float side = 0;         // |r - side|
  float sketch_norm = 0;  // |sketch|
  float row_norm = 0;     // |row|
};

// Where entries are written; arrays start at the first entry of the index.
struct EntryArrays {
  uint16_t* side = nullptr;
  uint16_t* sketch = nullptr;
  float* residual = nullptr;
  EntryErrors* errors = nullptr;  // (row / kErrorRows)
};

// Floats of scratch, 64-byte aligned, that build_entries needs.
int64_t entry_scratch_floats(const SketchBasis& basis);

// Makes entries [begin, end) of cache rows (row, row_dim). Limits grow: those of a block start at
// zero with its first row.
void build_entries(const MlaKernels& kernels, const MlaShape& shape, const SketchBasis& basis,
                   const MlaRows& rows, int64_t begin, int64_t end, const EntryArrays& to,
                   float* scratch);

// One token's queries as the index sees them; (head) unless said otherwise.
struct QueryProjection {
  std::vector<float> sketch;          // (head, rank): V q_c
  std::vector<float> residual;        // |q_c - V^T sketch|, as computed
  std::vector<float> residual_limit;  // the same, never too small
  std::vector<double> sketch_norm;
  std::vector<double> side_norm;
  std::vector<double> norm;  // |q|

  QueryProjection(const MlaShape& shape, int64_t rank);
};

// Floats of scratch, 64-byte aligned, that project_queries needs.
int64_t projection_scratch_floats(const MlaShape& shape, int64_t rank);

// `queries` (head, row_dim) unscaled and, scaled, `packed`. Allocates nothing.
void project_queries(const MlaKernels& kernels, const MlaShape& shape, const SketchBasis& basis,
                     const float* queries, const PackedVectors& packed, float* scratch,
                     QueryProjection& out) noexcept;

// The index's own score of one entry, without a certificate, in double precision.
double entry_score(const MlaShape& shape, const IndexRows& index, const QueryProjection& query,
                   const float* queries, int64_t head, int64_t row) noexcept;

// Lemma 2 with rounding: |score - index score| <= residual_limit x entry residual + this, for every
// entry of a block. The last term covers the float32 sums of both scores.
double rounding_limit(const MlaShape& shape, const SketchBasis& basis, const QueryProjection& query,
                      int64_t head, const EntryErrors& errors) noexcept;

}  // namespace ctxzip
