#include "score/prefill_attention.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "score/protected_rows.h"

namespace ctxzip {
namespace {

int64_t window_of(const Scores& scores) { return std::min(kObservedWindow, scores.n_context); }

// Largest value within kPoolTokens around each of the n rows.
void pool(float* values, int64_t n) {
  const std::vector<float> before(values, values + n);
  for (int64_t row = 0; row < n; ++row) {
    const auto first = before.begin() + std::max<int64_t>(0, row - kPoolTokens / 2);
    const auto last = before.begin() + std::min(n, row + kPoolTokens / 2 + 1);
    values[row] = *std::max_element(first, last);
  }
}

// Sums to means over queries and group, pooled, for the first n rows of each head.
void finish_window(int64_t n_rows, int64_t n_queries, int64_t group, Scores& scores) {
  for (int64_t head = 0; head < scores.n_layer * scores.n_kv_head; ++head) {
    float* values = scores.values.data() + head * scores.n_context;
    for (int64_t row = 0; row < n_rows; ++row) values[row] /= static_cast<float>(n_queries * group);
    pool(values, n_rows);
  }
}

}  // namespace

Scores start_prefill_scores(Method method, int64_t n_layer, int64_t n_kv_head, int64_t n_context) {
  return filled_scores(n_layer, n_kv_head, n_context, method == Method::kH2o ? -INFINITY : 0);
}

ScoreSink prefill_sink(Method method, int64_t n_prefix, Scores& scores) {
  const int64_t n_positions = n_prefix + scores.n_context;
  return {.statistic = method == Method::kH2o ? ColumnStatistic::kMaxLog : ColumnStatistic::kSum,
          .n_segments = 1,
          .columns = 0,
          .first_column = n_prefix,
          .first_query = method == Method::kSnapKv ? n_positions - window_of(scores) : n_prefix,
          .values = scores.values.data(),
          .head_stride = scores.n_context,
          .ends_pass = false};
}

void finish_prefill_scores(Method method, int64_t group, Scores& scores) {
  if (method == Method::kSnapKv) {
    const int64_t window = window_of(scores);
    finish_window(scores.n_context - window, window, group, scores);
    return protect_rows(scores.n_context - window, scores.n_context, 1, scores);
  }
  CHECK(method == Method::kH2o || method == Method::kH2oMean);
  for (int64_t pair = 0; pair < scores.pairs(); ++pair) {
    float& value = scores.values[static_cast<size_t>(pair)];
    const int64_t n_queries = scores.n_context - pair % scores.n_context;
    value =
        method == Method::kH2o ? std::exp(value) : value / static_cast<float>(n_queries * group);
  }
}

ScoreSink question_sink(Method method, int64_t first_query, Scores& scores) {
  return {.statistic = method == Method::kH2o ? ColumnStatistic::kMaxLog : ColumnStatistic::kSum,
          .n_segments = 3,
          .columns = 1,
          .first_query = first_query,
          .values = scores.values.data(),
          .head_stride = scores.n_context};
}

void finish_question_scores(Method method, int64_t n_queries, int64_t group, Scores& scores) {
  if (method == Method::kSnapKv) return finish_window(scores.n_context, n_queries, group, scores);
  CHECK(method == Method::kH2o);
  for (float& value : scores.values) value = std::exp(value);
}

}  // namespace ctxzip
