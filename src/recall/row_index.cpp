#include "recall/row_index.h"

#include <algorithm>
#include <utility>

namespace ctxzip {
namespace {

size_t bytes_of(int64_t n, size_t each) { return static_cast<size_t>(n) * each; }

}  // namespace

RowIndex::RowIndex(const MlaKernels& kernels, const MlaShape& shape, int64_t rank, int64_t capacity)
    : kernels_(kernels),
      shape_(shape),
      rank_(rank),
      capacity_(capacity),
      side_(bytes_of(capacity * shape.branch, sizeof(uint16_t))),
      serving_(make(SketchBasis::identity(kernels, shape, rank))) {
  scratch_ = Mapping(bytes_of(entry_scratch_floats(serving_.basis), sizeof(float)));
}

RowIndex::Generation RowIndex::make(SketchBasis basis) const {
  return {std::move(basis), Mapping(bytes_of(capacity_ * rank_, sizeof(uint16_t))),
          Mapping(bytes_of(capacity_, sizeof(float))),
          std::vector<EntryErrors>(static_cast<size_t>((capacity_ + kErrorRows - 1) / kErrorRows))};
}

IndexRows RowIndex::rows() const {
  return {reinterpret_cast<const uint16_t*>(side_.data()),
          reinterpret_cast<const uint16_t*>(serving_.sketch.data()),
          reinterpret_cast<const float*>(serving_.residual.data()), shape_.branch, rank_};
}

void RowIndex::build(Generation& generation, const MlaRows& cache, int64_t begin, int64_t end) {
  build_entries(kernels_, shape_, generation.basis, cache, begin, end,
                {reinterpret_cast<uint16_t*>(side_.data()),
                 reinterpret_cast<uint16_t*>(generation.sketch.data()),
                 reinterpret_cast<float*>(generation.residual.data()), generation.errors.data()},
                reinterpret_cast<float*>(scratch_.data()));
}

void RowIndex::extend(const MlaRows& cache, int64_t end) {
  build(serving_, cache, n_rows_, end);
  n_rows_ = end;
}

void RowIndex::clear() {
  next_.reset();
  serving_ = make(SketchBasis::identity(kernels_, shape_, rank_));
  n_rows_ = 0;
}

std::vector<float> RowIndex::basis_rows() const {
  const MlaRows rows = serving_.basis.rows();
  std::vector<float> out;
  out.reserve(static_cast<size_t>(rank_ * shape_.latent));
  for (int64_t row = 0; row < rank_; ++row) {
    const float* from = static_cast<const float*>(rows.data) + row * rows.stride;
    out.insert(out.end(), from, from + shape_.latent);
  }
  return out;
}

void RowIndex::reset(const MlaRows& cache, int64_t n_rows, std::span<const float> basis) {
  next_.reset();
  int64_t n_same = std::min(n_rows_, n_rows);
  if (!std::ranges::equal(basis_rows(), basis)) {
    serving_ = make(SketchBasis(kernels_, shape_, rank_, basis));
    n_same = 0;
  }
  // The error limits of the last rows' block may cover rows that are gone.
  build(serving_, cache, n_same / kErrorRows * kErrorRows, n_rows);
  n_rows_ = n_rows;
}

void RowIndex::start_rebuild(SketchBasis basis) {
  next_.emplace(make(std::move(basis)));
  n_rebuilt_ = 0;
}

bool RowIndex::rebuild(const MlaRows& cache, int64_t max_rows) {
  const int64_t end = std::min(n_rows_, n_rebuilt_ + max_rows);
  build(*next_, cache, n_rebuilt_, end);
  n_rebuilt_ = end;
  if (n_rebuilt_ < n_rows_) return false;
  serving_ = std::move(*next_);
  next_.reset();
  return true;
}

void RowIndex::cancel_rebuild() { next_.reset(); }

}  // namespace ctxzip
