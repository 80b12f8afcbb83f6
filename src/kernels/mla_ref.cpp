#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/half.h"
#include "kernels/mla.h"

namespace ctxzip {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

double element(const MlaRows& rows, int64_t row, int64_t dim) {
  const int64_t at = (rows.index ? rows.index[row] : row) * rows.stride + dim;
  return rows.type == RowType::kF32 ? static_cast<const float*>(rows.data)[at]
                                    : half_to_float(static_cast<const uint16_t*>(rows.data)[at]);
}

double product(const PackedVectors& vectors, const MlaRows& rows, int64_t row, int64_t vector) {
  double sum = 0;
  for (int64_t dim = 0; dim < vectors.dim; ++dim) {
    sum += double{vectors.data[vector * vectors.dim + dim]} * element(rows, row, dim);
  }
  return sum;
}

void pack(const float* vectors, int64_t n, int64_t dim, int64_t stride, float scale,
          float* packed) noexcept {
  std::fill_n(packed, packed_floats(n, dim), 0.0f);
  for (int64_t vector = 0; vector < n; ++vector) {
    for (int64_t at = 0; at < dim; ++at) {
      packed[vector * dim + at] = vectors[vector * stride + at] * scale;
    }
  }
}

void products(const PackedVectors& vectors, const MlaRows& rows, int64_t begin, int64_t end,
              float* out) noexcept {
  const int64_t padded = mla_padded(vectors.n);
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t vector = 0; vector < padded; ++vector) {
      *out++ = static_cast<float>(product(vectors, rows, row, vector));
    }
  }
}

void attend_head(const MlaShape& shape, const PackedVectors& queries, const MlaRows& rows,
                 int64_t begin, int64_t end, int64_t head, float* partial) {
  const int64_t padded = mla_padded(shape.n_head);
  double max = kNoScore;
  for (int64_t row = begin; row < end; ++row) {
    max = std::max(max, product(queries, rows, row, head));
  }
  double sum = 0;
  double weighted = 0;
  for (int64_t dim = 0; dim < shape.latent; ++dim) partial[dim * padded + head] = 0;
  for (int64_t row = begin; row < end && max != kNoScore; ++row) {
    const double below = product(queries, rows, row, head) - max;
    const double weight = std::exp(below);
    if (weight == 0) continue;
    sum += weight;
    weighted += weight * below;
    for (int64_t dim = 0; dim < shape.latent; ++dim) {
      float& out = partial[dim * padded + head];
      out = static_cast<float>(out + weight * element(rows, row, dim));
    }
  }
  partial[shape.latent * padded + head] = static_cast<float>(max);
  partial[(shape.latent + 1) * padded + head] = static_cast<float>(sum);
  partial[(shape.latent + 2) * padded + head] = static_cast<float>(weighted);
}

void attend(const MlaShape& shape, const PackedVectors& queries, const MlaRows& rows, int64_t begin,
            int64_t end, float* partial) noexcept {
  for (int64_t head = 0; head < mla_padded(shape.n_head); ++head) {
    attend_head(shape, queries, rows, begin, end, head, partial);
  }
}

void merge(const MlaShape& shape, const float* const* partials, int64_t n, int64_t first_dim,
           int64_t n_dims, float* out) noexcept {
  const int64_t padded = mla_padded(shape.n_head);
  for (int64_t head = 0; head < shape.n_head; ++head) {
    const auto value = [&](int64_t at, int64_t row) {
      return double{partials[at][row * padded + head]};
    };
    double max = kNoScore;
    for (int64_t at = 0; at < n; ++at) max = std::max(max, value(at, shape.latent));
    for (int64_t dim = first_dim; dim < first_dim + n_dims; ++dim) {
      double total = 0;
      double sum = 0;
      for (int64_t at = 0; at < n && max != kNoScore; ++at) {
        const double factor = std::exp(value(at, shape.latent) - max);
        total += factor * value(at, dim);
        sum += factor * value(at, shape.latent + 1);
      }
      out[head * shape.latent + dim] = sum > 0 ? static_cast<float>(total / sum) : 0.0f;
    }
  }
}

double entry_score(const ScanQueries& queries, const IndexRows& index, int64_t row,
                   int64_t vector) {
  const float* q = queries.vectors.data + vector * queries.vectors.dim;
  double score = double{queries.slope[vector]} * double{index.residual[row]};
  for (int64_t dim = 0; dim < index.side_dim; ++dim) {
    score += double{q[dim]} * double{half_to_float(index.side[row * index.side_dim + dim])};
  }
  for (int64_t dim = 0; dim < index.sketch_dim; ++dim) {
    score += double{q[index.side_dim + dim]} *
             double{half_to_float(index.sketch[row * index.sketch_dim + dim])};
  }
  return score;
}

void scan_scores(const ScanQueries& queries, const IndexRows& index, int64_t begin, int64_t end,
                 float* out) noexcept {
  for (int64_t row = begin; row < end; ++row) {
    for (int64_t vector = 0; vector < mla_padded(queries.vectors.n); ++vector) {
      *out++ = static_cast<float>(entry_score(queries, index, row, vector));
    }
  }
}

void scan(const ScanQueries& queries, const IndexRows& index, int64_t begin, int64_t end,
          uint64_t* fired) noexcept {
  for (int64_t row = begin; row < end; ++row) {
    uint64_t& word = fired[row / kScanRows];
    if (row % kScanRows == 0) word = 0;
    for (int64_t vector = 0; vector < queries.vectors.n; ++vector) {
      const auto score = static_cast<float>(entry_score(queries, index, row, vector));
      if (score >= queries.threshold[vector]) word |= uint64_t{1} << row % kScanRows;
    }
  }
}

}  // namespace

void mla_stats(const MlaShape& shape, const float* const* partials, int64_t n, float* max,
               float* log_sum, float* entropy) noexcept {
  const int64_t padded = mla_padded(shape.n_head);
  for (int64_t head = 0; head < shape.n_head; ++head) {
    const auto stat = [&](int64_t at, int64_t row) {
      return double{partials[at][(shape.latent + row) * padded + head]};
    };
    double top = kNoScore;
    for (int64_t at = 0; at < n; ++at) top = std::max(top, stat(at, 0));
    double sum = 0;
    double weighted = 0;
    for (int64_t at = 0; at < n; ++at) {
      if (stat(at, 1) <= 0) continue;
      const double shift = stat(at, 0) - top;
      const double factor = std::exp(shift);
      sum += factor * stat(at, 1);
      weighted += factor * (stat(at, 2) + shift * stat(at, 1));
    }
    if (max) max[head] = static_cast<float>(top);
    if (log_sum) log_sum[head] = static_cast<float>(sum > 0 ? top + std::log(sum) : kNoScore);
    if (entropy) {
      entropy[head] =
          static_cast<float>(sum > 0 ? std::max(0.0, std::log(sum) - weighted / sum) : 0);
    }
  }
}

const MlaKernels& ref_mla_kernels() {
  static constexpr MlaKernels kKernels = {"ref", pack, products, attend, merge, scan, scan_scores};
  return kKernels;
}

}  // namespace ctxzip
