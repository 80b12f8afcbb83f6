#include "attention/score_sink.h"

#include <algorithm>
#include <cmath>

namespace ctxzip {
namespace {

// Columns of the batch itself are taken so many at once; those that not every token sees, one by
// one.
constexpr int64_t kCausalColumns = 32;

// Tokens [first, last) against columns [begin, end), all of which they see.
void reduce_block(ColumnStatistic statistic, const ColumnItem& item, int64_t first, int64_t last,
                  int64_t begin, int64_t end) {
  if (first >= last) return;
  const Queries queries = {.data = item.queries.data + first * item.queries.token_stride,
                           .n_tokens = last - first,
                           .token_stride = item.queries.token_stride};
  const float* lse = item.lse + first * item.shape.group;
  const auto reduce =
      statistic == ColumnStatistic::kSum ? item.kernels->column_sum : item.kernels->column_max;
  reduce(item.shape, queries, lse, item.columns, begin, end, item.values, item.scratch);
}

}  // namespace

void reduce_columns(ColumnStatistic statistic, const ColumnItem& item) {
  const int64_t n_tokens = item.queries.n_tokens;
  const auto first_token = [&](int64_t column) {
    return std::max(item.first_token, column - item.first_seen);
  };
  for (int64_t begin = item.begin; begin < item.end;) {
    const bool seen_by_all = begin < item.first_seen;
    const int64_t end = seen_by_all ? std::min(item.end, item.first_seen)
                                    : std::min(item.end, begin + kCausalColumns);
    const int64_t all = std::min(n_tokens, first_token(end - 1));
    reduce_block(statistic, item, all, n_tokens, begin, end);
    for (int64_t column = begin; column < end; ++column) {
      reduce_block(statistic, item, first_token(column), all, column, column + 1);
    }
    begin = end;
  }
}

void reduce_weighted_columns(const ColumnItem& item, const ColumnFactors& factors) {
  const AttentionShape& shape = item.shape;
  for (int64_t head = 0; head < shape.group; ++head) {
    for (int64_t token = 0; token < item.queries.n_tokens; ++token) {
      factors.rows[token] =
          item.lse[token * shape.group + head] + 0.5f * std::log(factors.hidden_squares[token]);
    }
    std::fill(factors.best + item.begin, factors.best + item.end, -INFINITY);
    ColumnItem one = item;
    one.shape.group = 1;
    one.queries.data += head * shape.head_dim;
    one.lse = factors.rows;
    one.values = factors.best;
    reduce_columns(ColumnStatistic::kMaxLog, one);
    const float* logs = factors.column_logs + head * factors.log_stride;
    for (int64_t column = item.begin; column < item.end; ++column) {
      item.values[column] = std::max(item.values[column], factors.best[column] + logs[column]);
    }
  }
}

void add_moments(const Queries& q, int64_t head_dim, double* sums, double* products) {
  double row[kMaxHeadDim];
  for (int64_t token = 0; token < q.n_tokens; ++token) {
    const float* query = q.data + token * q.token_stride;
    for (int64_t dim = 0; dim < head_dim; ++dim) {
      row[dim] = static_cast<double>(query[dim]);
      sums[dim] += row[dim];
    }
    for (int64_t left = 0; left < head_dim; ++left) {
      double* to = products + left * head_dim;
      for (int64_t right = left; right < head_dim; ++right) to[right] += row[left] * row[right];
    }
  }
}

}  // namespace ctxzip
