// Index entries of all closed rows; which of them are archived is the partition's business, so an
// entry is made once and stays when rows move between kept and archive.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "recall/sketch.h"

namespace ctxzip {

// Of one row: branch and sketch as f16, and a float.
constexpr int64_t entry_bytes(const MlaShape& shape, int64_t rank) {
  return 2 * (shape.branch + rank) + 4;
}

class RowIndex {
 public:
  // Starts with the identity basis. Throws Error{kInvalidArgument} for a rank that does not fit.
  RowIndex(const MlaKernels& kernels, const MlaShape& shape, int64_t rank, int64_t capacity);

  int64_t n_rows() const { return n_rows_; }
  int64_t entry_bytes() const { return ctxzip::entry_bytes(shape_, rank_); }
  const SketchBasis& basis() const { return serving_.basis; }
  IndexRows rows() const;
  const EntryErrors& errors(int64_t row) const {
    return serving_.errors[static_cast<size_t>(row / kErrorRows)];
  }

  // Adds entries for cache rows [n_rows(), end).
  void extend(const MlaRows& cache, int64_t end);
  // Forgets all entries and returns to the identity basis.
  void clear();
  // (rank, latent), as SketchBasis takes it.
  std::vector<float> basis_rows() const;
  // Exactly the entries of cache rows [0, n_rows) with this basis; those that are there with the
  // same basis are not made anew. Drops a rebuild.
  void reset(const MlaRows& cache, int64_t n_rows, std::span<const float> basis);

  // Makes the sketches anew with another basis, a slice at a time, while the old ones serve.
  void start_rebuild(SketchBasis basis);
  // The next max_rows rows; true once all are done and serve.
  bool rebuild(const MlaRows& cache, int64_t max_rows);
  void cancel_rebuild();
  int64_t n_rebuilt() const { return next_ ? n_rebuilt_ : 0; }

 private:
  struct Generation {
    SketchBasis basis;
    Mapping sketch;
    Mapping residual;
    std::vector<EntryErrors> errors;
  };
  Generation make(SketchBasis basis) const;
  void build(Generation& generation, const MlaRows& cache, int64_t begin, int64_t end);

  MlaKernels kernels_;
  MlaShape shape_;
  int64_t rank_;
  int64_t capacity_;
  int64_t n_rows_ = 0;
  Mapping side_;
  Mapping scratch_;
  Generation serving_;
  std::optional<Generation> next_;
  int64_t n_rebuilt_ = 0;
};

}  // namespace ctxzip
