// What a pass can tell about the rows it attends to and about its own queries.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace ctxzip {

enum class ColumnStatistic : uint8_t {
  kMaxLog,    // log of the largest softmax weight
  kMaxLogit,  // largest scaled q.k, whatever the softmax
  kSum,       // sum of softmax weights
};

// One figure for each row ("column") of one segment, over the pass's queries and the query heads of
// the row's group.
struct ScoreSink {
  ColumnStatistic statistic = ColumnStatistic::kMaxLog;
  int n_segments = 0;        // the softmax runs over the first so many segments, own rows included
  int columns = 0;           // the segment whose rows are scored
  int64_t first_column = 0;  // own rows before it are not, if those are scored
  int64_t first_query = 0;   // own rows before it are not looked at as queries
  // (global layer, kv_head, head_stride), from first_column on: the figure so far. Start with -inf
  // for maxima, 0 for sums.
  float* values = nullptr;
  int64_t head_stride = 0;  // floats between heads; layers follow heads
  // Nothing after the last scored layer's weights is wanted of the pass.
  bool ends_pass = true;
  // KVzip+ (kMaxLog only): added to the logs of a column, (global layer, query head, head_stride);
  // the logs of a query's row lose the log of its hidden state's norm then. Null: plain.
  const float* column_logs = nullptr;
};

// First and second moments of queries before rope, for expected attention.
struct QuerySink {
  int64_t first_query = 0;     // own rows before it are left out
  double* sums = nullptr;      // (global layer, query head, head_dim)
  double* products = nullptr;  // (global layer, query head, head_dim, head_dim), upper triangle
};

// One work item of a ScoreSink: a range of columns of one KV head.
struct ColumnItem {
  const AttentionKernels* kernels = nullptr;
  AttentionShape shape;
  Queries queries;             // of the head's group, all tokens of the batch
  const float* lse = nullptr;  // (token, group)
  Segment columns;
  int64_t begin = 0;
  int64_t end = 0;
  // Column c is seen from token c - first_seen on: the first own row of the batch. A segment that
  // every token sees has first_seen = columns.n_rows.
  int64_t first_seen = 0;
  int64_t first_token = 0;  // earlier ones are not looked at
  float* values = nullptr;  // of column 0 of the segment
  std::byte* scratch = nullptr;
};

// Adds an item's attention to `values`.
void reduce_columns(ColumnStatistic statistic, const ColumnItem& item);

// The same for KVzip+. hidden_squares (token): squared norms. column_logs (group, log_stride).
// `rows` has room for the tokens, `best` for the segment's columns.
struct ColumnFactors {
  const float* hidden_squares = nullptr;
  const float* column_logs = nullptr;
  int64_t log_stride = 0;
  float* rows = nullptr;
  float* best = nullptr;
};
void reduce_weighted_columns(const ColumnItem& item, const ColumnFactors& factors);

// Adds one query head's tokens to its moments. q (token, token_stride), sums (head_dim), products
// (head_dim, head_dim).
void add_moments(const Queries& q, int64_t head_dim, double* sums, double* products);

}  // namespace ctxzip
