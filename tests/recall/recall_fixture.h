// Rows with a slow branch and a few that stand out, and plain attention to compare with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/half.h"
#include "recall/decode_step.h"

namespace ctxzip::testing {

// A tiny model's dimensions.
inline const MlaShape kTinyShape = {.latent = 64, .branch = 16, .n_head = 8, .scale = 0.2f};

class RecallTest : public ::testing::Test {
 protected:
  std::vector<float> normal(int64_t n, float sigma = 1) {
    std::normal_distribution<float> distribution(0, sigma);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = distribution(random_);
    return values;
  }

  // f16 rows (row, row_dim): RMS-normalised latents, drifting branches, every 29th one large.
  std::vector<uint16_t> make_rows(int64_t n, const MlaShape& shape = kTinyShape) {
    std::vector<float> rows = normal(n * shape.row_dim());
    for (int64_t row = 0; row < n; ++row) {
      float* at = rows.data() + row * shape.row_dim();
      double squares = 0;
      for (int64_t dim = 0; dim < shape.latent; ++dim) squares += double{at[dim]} * double{at[dim]};
      const auto norm = static_cast<float>(std::sqrt(squares / static_cast<double>(shape.latent)));
      for (int64_t dim = 0; dim < shape.latent; ++dim) at[dim] /= norm;
      const float scale = row % 29 == 5 ? 2.0f : 0.3f;
      for (int64_t dim = shape.latent; dim < shape.row_dim(); ++dim) {
        at[dim] = scale * at[dim] + std::sin(0.01f * static_cast<float>(row));
      }
    }
    std::vector<uint16_t> halves(rows.size());
    to_f16(rows.data(), halves.data(), static_cast<int64_t>(rows.size()));
    return halves;
  }

  std::vector<float> make_queries(const MlaShape& shape = kTinyShape, float sigma = 1) {
    return normal(shape.n_head * shape.row_dim(), sigma);
  }

  static float number(uint16_t half) { return half_to_float(half); }
  static float number(float value) { return value; }

  // Queries that look for a random row (f16 or f32) each, with noise.
  template <typename Value>
  std::vector<float> seeking_queries(const std::vector<Value>& rows, int64_t n_rows,
                                     const MlaShape& shape = kTinyShape, float noise = 0.5f) {
    std::vector<float> q = make_queries(shape, noise);
    std::uniform_int_distribution<int64_t> any_row(0, n_rows - 1);
    std::uniform_real_distribution<float> strength(0.3f, 1.2f);
    for (int64_t head = 0; head < shape.n_head; ++head) {
      const int64_t row = any_row(random_);
      const float times = strength(random_);
      for (int64_t dim = 0; dim < shape.row_dim(); ++dim) {
        q[static_cast<size_t>(head * shape.row_dim() + dim)] +=
            times * number(rows[static_cast<size_t>(row * shape.row_dim() + dim)]);
      }
    }
    return q;
  }

  template <typename Value>
  static double score(const MlaShape& shape, const std::vector<float>& q, int64_t head,
                      const Value* row) {
    double sum = 0;
    for (int64_t dim = 0; dim < shape.row_dim(); ++dim) {
      sum +=
          double{q[static_cast<size_t>(head * shape.row_dim() + dim)]} * double{number(row[dim])};
    }
    return sum * double{shape.scale};
  }

  // Softmax attention over the listed rows, in double precision.
  template <typename Value>
  static std::vector<float> exact(const MlaShape& shape, const std::vector<float>& q,
                                  const std::vector<Value>& rows,
                                  const std::vector<int64_t>& attended) {
    std::vector<float> out(static_cast<size_t>(shape.n_head * shape.latent), 0.0f);
    for (int64_t head = 0; head < shape.n_head; ++head) {
      std::vector<double> scores;
      for (const int64_t row : attended) {
        scores.push_back(score(shape, q, head, rows.data() + row * shape.row_dim()));
      }
      const double max = *std::max_element(scores.begin(), scores.end());
      std::vector<double> sums(static_cast<size_t>(shape.latent), 0.0);
      double total = 0;
      for (size_t at = 0; at < attended.size(); ++at) {
        const double weight = std::exp(scores[at] - max);
        total += weight;
        const Value* row = rows.data() + attended[at] * shape.row_dim();
        for (int64_t dim = 0; dim < shape.latent; ++dim) {
          sums[static_cast<size_t>(dim)] += weight * double{number(row[dim])};
        }
      }
      for (int64_t dim = 0; dim < shape.latent; ++dim) {
        out[static_cast<size_t>(head * shape.latent + dim)] =
            static_cast<float>(sums[static_cast<size_t>(dim)] / total);
      }
    }
    return out;
  }

  // The largest difference, of `want`'s largest value; infinite where values are missing or not
  // finite.
  static double difference(const std::vector<float>& found, const std::vector<float>& want) {
    double worst = found.size() == want.size() ? 0 : std::numeric_limits<double>::infinity();
    double size = 0;
    for (size_t at = 0; at < std::min(found.size(), want.size()); ++at) {
      if (!std::isfinite(found[at])) return std::numeric_limits<double>::infinity();
      worst = std::max(worst, std::abs(double{found[at]} - double{want[at]}));
      size = std::max(size, std::abs(double{want[at]}));
    }
    return worst == 0 ? 0 : worst / size;
  }
  static void expect_near(const std::vector<float>& found, const std::vector<float>& want,
                          double tolerance) {
    EXPECT_LE(difference(found, want), tolerance);
  }

  static std::vector<float> attend(RecallCache& cache, const std::vector<float>& q) {
    DecodeStep step(cache);
    return attend(step, cache, q);
  }
  static std::vector<float> attend(DecodeStep& step, const RecallCache& cache,
                                   const std::vector<float>& q) {
    const MlaShape& shape = cache.shape();
    std::vector<float> out(static_cast<size_t>(shape.n_head * shape.latent));
    step.attend(q.data(), out.data());
    return out;
  }

  // Rows that the cache attends to without recall.
  static std::vector<int64_t> near_rows(const RecallCache& cache) {
    std::vector<int64_t> rows(cache.kept().begin(), cache.kept().end());
    for (int64_t row = cache.n_closed(); row < cache.n_rows(); ++row) rows.push_back(row);
    return rows;
  }

  std::mt19937 random_{20'251};
};

}  // namespace ctxzip::testing
