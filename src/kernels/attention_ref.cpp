#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/attention.h"
#include "kernels/half.h"
#include "kernels/quantised_layout.h"

namespace ctxzip {
namespace {

constexpr double kNoScore = -std::numeric_limits<double>::infinity();

double element(RowType type, const void* rows, int64_t at) {
  return type == RowType::kF32 ? static_cast<const float*>(rows)[at]
                               : half_to_float(static_cast<const uint16_t*>(rows)[at]);
}

int64_t stored_row(const Segment& segment, int64_t row) {
  return segment.index ? segment.index[row] : row;
}

double key(const AttentionShape& shape, const Segment& segment, int64_t row, int64_t dim) {
  if (segment.quantised) {
    return key_value({*segment.quantised, shape.head_dim}, segment.k, row, dim);
  }
  return element(shape.row_type, segment.k, stored_row(segment, row) * shape.head_dim + dim);
}

double value(const AttentionShape& shape, const Segment& segment, int64_t row, int64_t dim) {
  if (segment.quantised) {
    return value_value({*segment.quantised, shape.head_dim}, segment.v, row, dim);
  }
  return element(shape.row_type, segment.v, stored_row(segment, row) * shape.head_dim + dim);
}

double score(const AttentionShape& shape, const float* q, const Segment& segment, int64_t row) {
  double sum = 0;
  for (int64_t dim = 0; dim < shape.head_dim; ++dim) {
    sum += static_cast<double>(q[dim]) * key(shape, segment, row, dim);
  }
  return sum * static_cast<double>(shape.scale);
}

// Running softmax of one query head: out is relative to exp(max).
struct HeadState {
  double out[kMaxHeadDim] = {};
  double max = kNoScore;
  double sum = 0;
};

void add_row(const AttentionShape& shape, const float* q, const Segment& segment, int64_t row,
             HeadState& state) {
  const double row_score = score(shape, q, segment, row);
  if (row_score == kNoScore) return;
  if (row_score > state.max) {
    const double factor = std::exp(state.max - row_score);
    for (int64_t dim = 0; dim < shape.n_value(); ++dim) state.out[dim] *= factor;
    state.sum *= factor;
    state.max = row_score;
  }
  const double weight = std::exp(row_score - state.max);
  for (int64_t dim = 0; dim < shape.n_value(); ++dim) {
    state.out[dim] += weight * value(shape, segment, row, dim);
  }
  state.sum += weight;
}

float log_sum_exp(const HeadState& state) {
  return static_cast<float>(state.sum > 0 ? state.max + std::log(state.sum) : kNoScore);
}

int64_t visible_rows(const TileSegments& over, int segment, int64_t token) {
  const int64_t n_rows = over.segments[static_cast<size_t>(segment)].n_rows;
  return segment == over.causal ? std::min(n_rows, over.causal_rows + token) : n_rows;
}

int64_t hidden_rows(const TileSegments& over, int segment, int64_t token) {
  if (over.hidden.empty()) return 0;
  return std::max<int64_t>(0, over.hidden[static_cast<size_t>(segment)] + token);
}

size_t scratch_bytes(const AttentionShape&) noexcept { return 0; }

void attend_tile(const AttentionShape& shape, const Queries& q, const TileSegments& over,
                 float* out, int64_t out_token_stride, float* lse, std::byte*) noexcept {
  const int n_segments = static_cast<int>(over.segments.size());
  for (int64_t token = 0; token < q.n_tokens; ++token) {
    for (int64_t head = 0; head < shape.group; ++head) {
      const float* query = q.data + token * q.token_stride + head * shape.head_dim;
      HeadState state;
      for (int segment = 0; segment <= n_segments; ++segment) {
        if (segment == over.n_lse_segments) {
          if (lse) lse[token * shape.group + head] = log_sum_exp(state);
          if (!out) break;
        }
        if (segment == n_segments) break;
        for (int64_t row = hidden_rows(over, segment, token);
             row < visible_rows(over, segment, token); ++row) {
          add_row(shape, query, over.segments[static_cast<size_t>(segment)], row, state);
        }
      }
      if (!out) continue;
      float* result = out + token * out_token_stride + head * shape.n_value();
      for (int64_t dim = 0; dim < shape.n_value(); ++dim) {
        result[dim] = state.sum > 0 ? static_cast<float>(state.out[dim] / state.sum) : 0.0f;
      }
    }
  }
}

void attend_block(const AttentionShape& shape, const float* q, const Segment& segment,
                  int64_t begin, int64_t end, float* partial) noexcept {
  for (int64_t head = 0; head < shape.group; ++head) {
    HeadState state;
    for (int64_t row = begin; row < end; ++row) {
      add_row(shape, q + head * shape.head_dim, segment, row, state);
    }
    float* result = partial + head * (shape.n_value() + 2);
    for (int64_t dim = 0; dim < shape.n_value(); ++dim) {
      result[dim] = static_cast<float>(state.out[dim]);
    }
    result[shape.n_value()] = static_cast<float>(state.max);
    result[shape.n_value() + 1] = static_cast<float>(state.sum);
  }
}

void merge_blocks(const AttentionShape& shape, const float* partials, int64_t block_stride,
                  int64_t n_blocks, float* out) noexcept {
  const int64_t n_value = shape.n_value();
  const int64_t head_floats = n_value + 2;
  for (int64_t head = 0; head < shape.group; ++head) {
    const auto block = [&](int64_t b) { return partials + b * block_stride + head * head_floats; };
    double max = kNoScore;
    for (int64_t b = 0; b < n_blocks; ++b) {
      max = std::max(max, static_cast<double>(block(b)[n_value]));
    }
    double sum = 0;
    double result[kMaxHeadDim] = {};
    for (int64_t b = 0; b < n_blocks && max != kNoScore; ++b) {
      const double weight = std::exp(static_cast<double>(block(b)[n_value]) - max);
      sum += weight * static_cast<double>(block(b)[n_value + 1]);
      for (int64_t dim = 0; dim < n_value; ++dim) {
        result[dim] += weight * static_cast<double>(block(b)[dim]);
      }
    }
    for (int64_t dim = 0; dim < n_value; ++dim) {
      out[head * n_value + dim] = sum > 0 ? static_cast<float>(result[dim] / sum) : 0.0f;
    }
  }
}

void column_max(const AttentionShape& shape, const Queries& q, const float* lse,
                const Segment& columns, int64_t begin, int64_t end, float* best,
                std::byte*) noexcept {
  for (int64_t token = 0; token < q.n_tokens; ++token) {
    for (int64_t head = 0; head < shape.group; ++head) {
      const double offset = static_cast<double>(lse[token * shape.group + head]);
      if (offset == kNoScore) continue;
      const float* query = q.data + token * q.token_stride + head * shape.head_dim;
      for (int64_t column = begin; column < end; ++column) {
        const double gain = score(shape, query, columns, column) - offset;
        best[column] = std::max(best[column], static_cast<float>(gain));
      }
    }
  }
}

void column_sum(const AttentionShape& shape, const Queries& q, const float* lse,
                const Segment& columns, int64_t begin, int64_t end, float* sums,
                std::byte*) noexcept {
  for (int64_t column = begin; column < end; ++column) {
    double sum = 0;
    for (int64_t token = 0; token < q.n_tokens; ++token) {
      for (int64_t head = 0; head < shape.group; ++head) {
        const double offset = static_cast<double>(lse[token * shape.group + head]);
        if (offset == kNoScore) continue;
        const float* query = q.data + token * q.token_stride + head * shape.head_dim;
        sum += std::exp(score(shape, query, columns, column) - offset);
      }
    }
    sums[column] += static_cast<float>(sum);
  }
}

}  // namespace

const AttentionKernels& ref_attention_kernels() {
  static constexpr AttentionKernels kKernels = {
      "ref", scratch_bytes, attend_tile, attend_block, merge_blocks, column_max, column_sum};
  return kKernels;
}

}  // namespace ctxzip
