// The importance of cache rows under NoPE-MLA: how much of a row's branch is left when the slow
// part of the sequence is removed (VestigeKV, section 4.1, equation 3). Independent of every query.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace ctxzip {

// Real-FFT bins that count as slow in a stretch of n rows: `bins_per_4096` in 4096, in proportion
// otherwise, at least 1 and at most half of them.
int64_t low_pass_bins(int64_t n_rows, double bins_per_4096);

// Removes the lowest real-FFT bins along a stretch of rows. Exact fast form: what they span is the
// space of 2 bins - 1 sampled sines and cosines, so the low-passed rows are a projection on it.
// Immutable once made; one serves all blocks of its length.
class LowPass {
 public:
  // 1 <= n_bins <= n_rows / 2. Throws Error{kInvalidArgument} otherwise.
  LowPass(int64_t n_rows, int64_t n_bins);
  ~LowPass();
  LowPass(LowPass&&) noexcept;
  LowPass& operator=(LowPass&&) noexcept;

  int64_t n_rows() const;

  // sigma (n_rows) of branch (n_rows, dim): the norm of each row's remainder. Sums are double, the
  // result float. A row whose value is not finite, and all rows that it leaves without a finite
  // remainder, get +inf: they count as important.
  void sigma(std::span<const float> branch, int64_t dim, std::span<float> out) const;

 private:
  struct Basis;
  std::unique_ptr<const Basis> basis_;
};

// The paper's own form: the same remainder over a whole closed prefix of any length, by FFT, since
// the basis grows with the number of bins. branch (n_rows, dim), out (n_rows).
void prefix_sigma(std::span<const float> branch, int64_t dim, int64_t n_bins, std::span<float> out);

}  // namespace ctxzip
