#include "score/expected_attention.h"

#include <algorithm>
#include <cmath>

#include "cache/read_row.h"
#include "model/rotation.h"
#include "score/protected_rows.h"

namespace ctxzip {
namespace {

// (rows, n) times (n, cols), row-major.
std::vector<double> product(const std::vector<double>& left, const std::vector<double>& right,
                            size_t n) {
  const size_t n_rows = left.size() / n;
  const size_t n_cols = right.size() / n;
  std::vector<double> result(n_rows * n_cols);
  for (size_t row = 0; row < n_rows; ++row) {
    for (size_t at = 0; at < n; ++at) {
      const double factor = left[row * n + at];
      for (size_t col = 0; col < n_cols; ++col) {
        result[row * n_cols + col] += factor * right[at * n_cols + col];
      }
    }
  }
  return result;
}

std::vector<double> transposed(const std::vector<double>& matrix, size_t n) {
  std::vector<double> result(matrix.size());
  for (size_t at = 0; at < matrix.size(); ++at) result[at % n * n + at / n] = matrix[at];
  return result;
}

// What one query head will ask on average: score(k) = mean.k + k' covariance k / 2, both scaled.
struct ExpectedQuery {
  std::vector<float> mean;
  std::vector<float> covariance;

  double log_weight(const std::vector<float>& key) const {
    double sum = 0;
    const size_t dim = key.size();
    std::vector<float> projected(dim);
    for (size_t left = 0; left < dim; ++left) {
      const float* row = covariance.data() + left * dim;
      for (size_t right = 0; right < dim; ++right) projected[right] += key[left] * row[right];
    }
    for (size_t at = 0; at < dim; ++at) {
      sum += static_cast<double>(key[at]) *
             (static_cast<double>(mean[at]) + static_cast<double>(projected[at]) / 2);
    }
    return sum;
  }
};

// `place` counts query heads over the global layers.
ExpectedQuery expected_query(const QueryMoments& moments, int64_t place, size_t dim, double scale,
                             const std::vector<double>& rotation) {
  const auto n = static_cast<double>(moments.n_queries);
  const double* const sums = moments.sums.data() + static_cast<size_t>(place) * dim;
  const double* const products = moments.products.data() + static_cast<size_t>(place) * dim * dim;
  std::vector<double> mean(dim);
  std::vector<double> covariance(dim * dim);
  for (size_t left = 0; left < dim; ++left) {
    mean[left] = sums[left] / n;
    for (size_t right = 0; right < dim; ++right) {
      const size_t upper = std::min(left, right) * dim + std::max(left, right);
      covariance[left * dim + right] = products[upper] / n - sums[left] / n * (sums[right] / n);
    }
  }
  mean = product(mean, rotation, dim);
  covariance = product(transposed(rotation, dim), product(covariance, rotation, dim), dim);
  ExpectedQuery query;
  for (const double value : mean) query.mean.push_back(static_cast<float>(scale * value));
  for (const double value : covariance) {
    query.covariance.push_back(static_cast<float>(scale * scale * value));
  }
  return query;
}

// Adds the softmax of `logs`, times `weight`, to `sums`.
void add_softmax(const std::vector<double>& logs, double weight, std::vector<double>& sums) {
  const double largest = *std::max_element(logs.begin(), logs.end());
  double total = 0;
  for (const double value : logs) total += std::exp(value - largest);
  for (size_t at = 0; at < logs.size(); ++at) {
    sums[at] += weight * std::exp(logs[at] - largest) / total;
  }
}

double norm(const std::vector<float>& row) {
  double square = 0;
  for (const float value : row) square += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(square);
}

}  // namespace

QueryMoments start_moments(const detail::ModelState& model, int64_t n_prefix, int64_t n_context) {
  const Hyperparameters& hp = model.hp;
  const auto n_heads = static_cast<size_t>(hp.layers.n_global() * hp.n_head);
  const auto dim = static_cast<size_t>(hp.head_dim);
  QueryMoments moments;
  moments.first_query = n_prefix + context_sinks(n_prefix, n_context);
  moments.n_queries = n_prefix + n_context - moments.first_query;
  moments.sums.resize(n_heads * dim);
  moments.products.resize(n_heads * dim * dim);
  return moments;
}

Scores expected_attention_scores(const detail::ModelState& model, const QueryMoments& moments,
                                 const DenseCache& rows, int64_t n_prefix, int64_t n_context) {
  const Hyperparameters& hp = model.hp;
  const KvShape& shape = rows.shape();
  const auto dim = static_cast<size_t>(hp.head_dim);
  const int64_t n_sinks = context_sinks(n_prefix, n_context);
  const int64_t first = n_prefix + n_sinks;
  const auto n = static_cast<size_t>(n_context - n_sinks);
  Scores scores = filled_scores(shape.n_layer, shape.n_kv_head, n_context, 0);
  std::vector<float> row(dim);
  for (int64_t index = 0; index < shape.n_layer; ++index) {
    const int64_t layer = hp.layers.global_layers()[static_cast<size_t>(index)];
    const std::vector<double> rotation =
        average_rotation(model, layer, n_prefix + n_context, kFuturePositions);
    for (int64_t kv_head = 0; kv_head < shape.n_kv_head; ++kv_head) {
      std::vector<double> weights(n);
      std::vector<double> logs(n);
      for (int64_t member = 0; member < hp.group(); ++member) {
        const int64_t place = index * hp.n_head + kv_head * hp.group() + member;
        const ExpectedQuery query =
            expected_query(moments, place, dim, static_cast<double>(hp.attention_scale), rotation);
        for (size_t at = 0; at < n; ++at) {
          read_row(shape.row_type, rows.k_rows(index, kv_head), first + static_cast<int64_t>(at),
                   row);
          logs[at] = query.log_weight(row);
        }
        add_softmax(logs, 1 / static_cast<double>(hp.group()), weights);
      }
      float* const to = scores.head(index, kv_head) + n_sinks;
      for (size_t at = 0; at < n; ++at) {
        read_row(shape.row_type, rows.v_rows(index, kv_head), first + static_cast<int64_t>(at),
                 row);
        to[at] = static_cast<float>(weights[at] * norm(row));
      }
    }
  }
  const float highest = *std::max_element(scores.values.begin(), scores.values.end());
  protect_rows(0, n_sinks, highest, scores);
  return scores;
}

}  // namespace ctxzip
