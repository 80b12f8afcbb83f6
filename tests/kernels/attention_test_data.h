// Inputs of the attention tests and their exact answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/attention.h"

namespace ctxzip::testing {

constexpr uint32_t kSeed = 20250717;

// Floats between two guard zones, starting `misalign` floats after a 64-byte boundary.
class GuardedFloats {
 public:
  explicit GuardedFloats(size_t n, size_t misalign = 1);
  float* data() { return memory_.data() + start_; }
  const float* data() const { return memory_.data() + start_; }
  size_t size() const { return size_; }
  float operator[](size_t at) const { return data()[at]; }
  bool guards_intact() const;

 private:
  std::vector<float> memory_;
  size_t start_;
  size_t size_;
};

// Scratch of exactly `bytes`, 64-byte aligned `shift` cache lines after a page, with a guard
// behind.
class GuardedScratch {
 public:
  explicit GuardedScratch(size_t bytes, size_t shift = 0);
  std::byte* data() { return memory_.data() + start_; }
  bool guards_intact() const;

 private:
  std::vector<std::byte> memory_;
  size_t start_;
  size_t size_;
};

// K and V rows of one head, stored as `type` at an element offset that no vector is aligned to.
// Quantised types are stored by quantise(), after all values are set.
class StoredRows {
 public:
  StoredRows(RowType type, int64_t head_dim, int64_t n_rows, size_t misalign = 1);

  // Standard normal K times `k_scale`, standard normal V.
  void randomise(std::mt19937& random, double k_scale = 1);
  void set_k(int64_t row, int64_t dim, float value);
  void set_v(int64_t row, int64_t dim, float value);
  // Keys are the values too, as latent rows are.
  void share() { shared_ = true; }
  void quantise();
  // Overwrites what a quantised type stores behind the last row: codes of ones, V's scales with
  // NaN.
  void spoil_padding();
  // The stored values, one row.
  const double* k(int64_t row) const { return exact_k_.data() + row * head_dim_; }
  const double* v(int64_t row) const {
    return (shared_ ? exact_k_ : exact_v_).data() + row * head_dim_;
  }

  // A segment over the first n_rows rows, or over the rows of `index`.
  Segment segment(int64_t n_rows) const;
  Segment segment(const std::vector<uint32_t>& index) const;
  // Rows [begin, end).
  Segment slice(int64_t begin, int64_t end) const;

 private:
  // Returns the value as stored.
  double set(std::vector<std::byte>& bytes, int64_t row, int64_t dim, float value);
  const std::byte* address(const std::vector<std::byte>& bytes, int64_t row) const;

  RowType type_;
  int64_t head_dim_;
  int64_t n_rows_;
  size_t misalign_;
  bool shared_ = false;
  std::vector<std::byte> k_;
  std::vector<std::byte> v_;
  std::vector<double> exact_k_;
  std::vector<double> exact_v_;
};

// One row as an exact answer sees it.
struct ExactRow {
  const StoredRows* rows;
  int64_t row;
  bool masked = false;
};

struct ExactHead {
  std::vector<double> out;  // softmax(scale q.k) v
  double lse;               // of the scaled scores
  double max;               // largest scaled score
  double sum;               // of exp(score - max)
  double max_abs_score;
  double max_abs_v;
};

// Plain masked softmax over one list of rows: scores, then probabilities, then one dot per
// dimension.
ExactHead exact_attention(const float* q, int64_t head_dim, double scale,
                          const std::vector<ExactRow>& rows);

double exact_score(const float* q, int64_t head_dim, double scale, const ExactRow& row);

}  // namespace ctxzip::testing
