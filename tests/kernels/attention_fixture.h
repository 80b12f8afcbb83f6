// What the attention tests share: implementations, shapes, and comparison with the exact answer.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "attention_test_data.h"

namespace ctxzip::testing {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// ref computes in double and rounds results, partials and maxima to float once or twice.
constexpr double kRefRoundings = 4;
// tuned sums up to 576 products in float32 with up to 8 independent partial sums (error of a score:
// about 32 half-ulps of its largest partial sum), then loses 2 ulp in exp.
constexpr double kTunedRoundings = 48;

struct Implementation {
  std::string name;
  const AttentionKernels* kernels;
  double roundings;
};

// ref, and tuned for every instruction set of this CPU.
const std::vector<Implementation>& implementations();

// head_dim, group, value_dim
using Shape = std::tuple<int, int, int>;
// Dimensions: smallest, narrower and wider than vectors, not a multiple of 16, the usual ones.
// Groups: one part, two parts, several.
inline const std::vector<Shape> kShapes = {
    {8, 1, 0},  {16, 2, 0},  {24, 3, 0},  {64, 1, 0},  {64, 3, 0},  {64, 7, 0},  {72, 13, 0},
    {80, 5, 0}, {128, 4, 0}, {128, 6, 0}, {128, 8, 0}, {256, 4, 0}, {256, 64, 0}};
// Latent attention: values are the first part of a row.
inline const std::vector<Shape> kLatentShapes = {
    {40, 4, 32}, {72, 5, 24}, {80, 17, 64}, {576, 9, 512}, {576, 40, 512}};

class AttentionTest : public ::testing::TestWithParam<std::tuple<size_t, RowType, Shape>> {
 protected:
  AttentionTest() : random_(kSeed) {
    const auto [implementation, type, shape] = GetParam();
    implementation_ = implementations()[implementation];
    shape_ = {.row_type = type,
              .head_dim = std::get<0>(shape),
              .group = std::get<1>(shape),
              .scale = 1 / std::sqrt(static_cast<float>(std::get<0>(shape))),
              .value_dim = std::get<2>(shape)};
  }

  const AttentionKernels& kernels() const { return *implementation_.kernels; }
  bool big_group() const { return shape_.group > 16 || shape_.head_dim > 256; }

  StoredRows random_rows(int64_t n, double k_scale = 1) {
    StoredRows rows(shape_.row_type, shape_.head_dim, n);
    if (shape_.value_dim > 0) rows.share();
    rows.randomise(random_, k_scale);
    return rows;
  }

  // (n_tokens, token_stride), standard normal; the stride leaves a gap between tokens.
  std::vector<float> random_queries(int64_t n_tokens) {
    std::normal_distribution<float> normal;
    std::vector<float> q(static_cast<size_t>(n_tokens * token_stride() + 1));
    for (float& value : q) value = normal(random_);
    return q;
  }
  int64_t token_stride() const { return shape_.group * shape_.head_dim + 3; }

  double score_tolerance(const ExactHead& exact) const {
    return implementation_.roundings * kEpsilon * (1 + exact.max_abs_score) + score_slack_;
  }

  void expect_tile(const std::vector<float>& q, int64_t n_tokens, const TileSegments& over,
                   const std::vector<std::vector<ExactRow>>& rows);
  void expect_block(const float* q, const Segment& segment, int64_t begin, int64_t end,
                    const std::vector<ExactRow>& rows);

  std::mt19937 random_;
  Implementation implementation_;
  AttentionShape shape_;
  // Allowed beyond float32's roundings: to a score, and to an output.
  double score_slack_ = 0;
  double output_slack_ = 0;
};

// All rows of the segment.
std::vector<ExactRow> exact_rows(const StoredRows& rows, const Segment& segment);

std::string test_name(const ::testing::TestParamInfo<AttentionTest::ParamType>& param);

}  // namespace ctxzip::testing
