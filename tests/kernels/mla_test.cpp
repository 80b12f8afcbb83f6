// Every implementation of the shared-row kernels against exact sums in double precision.
#include "kernels/mla.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/half.h"

namespace ctxzip::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr unsigned kSeed = 20260;
// Sums of up to 576 products in float32 over at most 60 partial sums, then 2 ulp of exp; ref rounds
// once or twice. Relative to the sum of absolute values.
constexpr double kTunedTolerance = 64 * 0x1p-24;
constexpr double kRefTolerance = 4 * 0x1p-24;
constexpr float kGuard = 12345.0f;

struct Implementation {
  std::string name;
  MlaKernels kernels;
  double tolerance;
};

const std::vector<Implementation>& implementations() {
  static const std::vector<Implementation> kAll = [] {
    std::vector<Implementation> all = {{"ref", ref_mla_kernels(), kRefTolerance}};
    for (const MlaTarget& target : tuned_mla_targets()) {
      all.push_back({std::string(target.target), target.kernels, kTunedTolerance});
    }
    return all;
  }();
  return kAll;
}

// latent, branch, heads: smallest, a tiny model's, one more head than a tile, the true dimensions.
using Shape = std::tuple<int, int, int>;
const std::vector<Shape> kShapes = {{8, 8, 1}, {32, 8, 4}, {72, 24, 33}, {512, 64, 32}};

struct AlignedFloats {
  explicit AlignedFloats(int64_t n) : storage(static_cast<size_t>(n) + 16, kGuard) {
    const auto address = reinterpret_cast<uintptr_t>(storage.data());
    data = storage.data() + (64 - address % 64) % 64 / sizeof(float);
  }
  std::vector<float> storage;
  float* data;
};

class MlaTest : public ::testing::TestWithParam<std::tuple<size_t, RowType, Shape>> {
 protected:
  MlaTest() : random_(kSeed), implementation_(implementations()[std::get<0>(GetParam())]) {
    const auto& [latent, branch, heads] = std::get<2>(GetParam());
    shape_ = {latent, branch, heads, 1 / std::sqrt(static_cast<float>(latent + branch))};
  }

  const MlaKernels& kernels() const { return implementation_.kernels; }
  int64_t padded() const { return mla_padded(shape_.n_head); }

  std::vector<float> normal(int64_t n, float sigma = 1) {
    std::normal_distribution<float> distribution(0, sigma);
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) value = distribution(random_);
    return values;
  }

  // Rows `stride` values apart; reads of what lies between them would show.
  void make_rows(int64_t n) {
    const int64_t stride = shape_.row_dim() + 8;
    values_ = normal(n * stride);
    halves_.resize(values_.size());
    to_f16(values_.data(), halves_.data(), n * stride);
    const RowType type = std::get<1>(GetParam());
    if (type == RowType::kF16) {
      for (size_t at = 0; at < values_.size(); ++at) values_[at] = half_to_float(halves_[at]);
    }
    rows_ = {type == RowType::kF16 ? static_cast<const void*>(halves_.data()) : values_.data(),
             type, stride};
  }

  void make_queries() {
    queries_ = normal(shape_.n_head * shape_.row_dim());
    packed_ = std::make_unique<AlignedFloats>(packed_floats(shape_.n_head, shape_.row_dim()));
    kernels().pack(queries_.data(), shape_.n_head, shape_.row_dim(), shape_.row_dim(), shape_.scale,
                   packed_->data);
  }
  PackedVectors packed() const { return {packed_->data, shape_.n_head, shape_.row_dim()}; }

  const float* row(int64_t at) const {
    return values_.data() + (rows_.index ? rows_.index[at] : at) * rows_.stride;
  }
  double score(int64_t head, int64_t at) const {
    double sum = 0;
    for (int64_t dim = 0; dim < shape_.row_dim(); ++dim) {
      sum += double{queries_[static_cast<size_t>(head * shape_.row_dim() + dim)] * shape_.scale} *
             double{row(at)[dim]};
    }
    return sum;
  }

  // What the attention of one head over [begin, end) is.
  struct Exact {
    std::vector<double> out;
    double max = -std::numeric_limits<double>::infinity();
    double log_sum = -std::numeric_limits<double>::infinity();
    double entropy = 0;
    double max_abs_score = 0;
    double max_abs_value = 1;
  };
  Exact exact(int64_t head, int64_t begin, int64_t end) const {
    Exact result;
    result.out.resize(static_cast<size_t>(shape_.latent));
    double sum = 0;
    for (int64_t at = begin; at < end; ++at) {
      result.max = std::max(result.max, score(head, at));
      result.max_abs_score = std::max(result.max_abs_score, std::abs(score(head, at)));
    }
    for (int64_t at = begin; at < end; ++at) sum += std::exp(score(head, at) - result.max);
    if (begin < end) result.log_sum = result.max + std::log(sum);
    for (int64_t at = begin; at < end; ++at) {
      const double weight = std::exp(score(head, at) - result.log_sum);
      if (weight > 0) result.entropy -= weight * std::log(weight);
      for (int64_t dim = 0; dim < shape_.latent; ++dim) {
        const double value = double{row(at)[dim]};
        result.out[static_cast<size_t>(dim)] += weight * value;
        result.max_abs_value = std::max(result.max_abs_value, std::abs(value));
      }
    }
    return result;
  }

  // Attends in the given pieces and compares merged output and statistics.
  void expect_attention(const std::vector<int64_t>& cuts) {
    const size_t n = cuts.size() - 1;
    std::vector<AlignedFloats> partials;
    std::vector<const float*> pointers;
    for (size_t at = 0; at < n; ++at) {
      partials.emplace_back(partial_floats(shape_));
      kernels().attend(shape_, packed(), rows_, cuts[at], cuts[at + 1], partials.back().data);
      ASSERT_EQ(partials.back().data[partial_floats(shape_)], kGuard);
    }
    for (const AlignedFloats& partial : partials) pointers.push_back(partial.data);
    std::vector<float> out(static_cast<size_t>(shape_.n_head * shape_.latent + 1), kGuard);
    const int64_t half = shape_.latent / 16 * 8;
    const auto n_partials = static_cast<int64_t>(n);
    kernels().merge(shape_, pointers.data(), n_partials, 0, half, out.data());
    kernels().merge(shape_, pointers.data(), n_partials, half, shape_.latent - half, out.data());
    ASSERT_EQ(out.back(), kGuard);
    std::vector<float> max(static_cast<size_t>(shape_.n_head));
    std::vector<float> log_sum(max.size());
    std::vector<float> entropy(max.size());
    mla_stats(shape_, pointers.data(), n_partials, max.data(), log_sum.data(), entropy.data());
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      const Exact want = exact(head, cuts.front(), cuts.back());
      const auto at = static_cast<size_t>(head);
      // An error of a score moves the logarithm of its weight by as much.
      const double tolerance = 2 * implementation_.tolerance * (1 + want.max_abs_score);
      if (cuts.front() == cuts.back()) {
        ASSERT_EQ(max[at], -kInfinity);
        ASSERT_EQ(log_sum[at], -kInfinity);
        ASSERT_EQ(entropy[at], 0);
      } else {
        ASSERT_NEAR(max[at], want.max, tolerance);
        ASSERT_NEAR(log_sum[at], want.log_sum, tolerance);
        ASSERT_NEAR(entropy[at], want.entropy, 4 * tolerance * (1 + want.max_abs_score));
      }
      for (int64_t dim = 0; dim < shape_.latent; ++dim) {
        ASSERT_NEAR(out[static_cast<size_t>(head * shape_.latent + dim)],
                    want.out[static_cast<size_t>(dim)], 2 * tolerance * want.max_abs_value);
      }
    }
  }

  std::mt19937 random_;
  const Implementation& implementation_;
  MlaShape shape_;
  std::vector<float> values_;
  std::vector<uint16_t> halves_;
  MlaRows rows_;
  std::vector<float> queries_;
  std::unique_ptr<AlignedFloats> packed_;
};

TEST_P(MlaTest, ProductsMatchExactSums) {
  make_rows(140);
  make_queries();
  std::vector<float> out(static_cast<size_t>(140 * padded() + 1), kGuard);
  for (const int64_t n : {0, 1, 2, 3, 4, 5, 63, 64, 65, 131}) {
    std::fill(out.begin(), out.end(), kGuard);
    kernels().products(packed(), rows_, 3, n + 3, out.data());
    ASSERT_EQ(out[static_cast<size_t>(n * padded())], kGuard);
    for (int64_t at = 0; at < n; ++at) {
      for (int64_t head = 0; head < shape_.n_head; ++head) {
        ASSERT_NEAR(out[static_cast<size_t>(at * padded() + head)], score(head, at + 3),
                    implementation_.tolerance * 3);
      }
    }
  }
}

TEST_P(MlaTest, AttendsAnyNumberOfRows) {
  make_rows(200);
  make_queries();
  for (const int64_t n : {0, 1, 2, 4, 63, 64, 65, 68, 131}) {
    SCOPED_TRACE(n);
    expect_attention({5, 5 + n});
  }
}

TEST_P(MlaTest, PartsMergeAndEmptyOnesDoNotCount) {
  make_rows(200);
  make_queries();
  expect_attention({0, 0, 1, 70, 70, 134, 200, 200});
}

TEST_P(MlaTest, FollowsTheIndex) {
  make_rows(200);
  make_queries();
  std::vector<uint32_t> index;
  for (uint32_t at = 1; at < 200; at += 1 + at % 3) index.push_back(at);
  rows_.index = index.data();
  expect_attention({2, 40, static_cast<int64_t>(index.size())});
}

TEST_P(MlaTest, LargeScoresStayFinite) {
  make_rows(100);
  for (float& value : values_) value = std::round(value * 8);
  to_f16(values_.data(), halves_.data(), static_cast<int64_t>(values_.size()));
  make_queries();
  expect_attention({0, 30, 100});
}

class ScanTest : public MlaTest {
 protected:
  void make_index(int64_t n) {
    side_.resize(static_cast<size_t>(n * shape_.branch));
    sketch_.resize(static_cast<size_t>(n * shape_.latent));
    to_f16(normal(n * shape_.branch).data(), side_.data(), n * shape_.branch);
    to_f16(normal(n * shape_.latent).data(), sketch_.data(), n * shape_.latent);
    residual_ = normal(n);
    slope_ = normal(padded());
    for (int64_t at = shape_.n_head; at < padded(); ++at) slope_[static_cast<size_t>(at)] = 0;
    threshold_.assign(static_cast<size_t>(padded()), kInfinity);
    index_ = {side_.data(), sketch_.data(), residual_.data(), shape_.branch, shape_.latent};
  }
  ScanQueries queries() const { return {packed(), slope_.data(), threshold_.data()}; }

  std::vector<uint16_t> side_;
  std::vector<uint16_t> sketch_;
  std::vector<float> residual_;
  std::vector<float> slope_;
  std::vector<float> threshold_;
  IndexRows index_;
};

TEST_P(ScanTest, ScoresMatchExactSums) {
  make_index(70);
  make_queries();
  std::vector<float> out(static_cast<size_t>(67 * padded() + 1), kGuard);
  kernels().scan_scores(queries(), index_, 3, 70, out.data());
  ASSERT_EQ(out.back(), kGuard);
  for (int64_t row = 3; row < 70; ++row) {
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      const float* q = queries_.data() + head * shape_.row_dim();
      double sum =
          double{slope_[static_cast<size_t>(head)]} * double{residual_[static_cast<size_t>(row)]};
      for (int64_t dim = 0; dim < shape_.row_dim(); ++dim) {
        const auto from_sketch = static_cast<size_t>(row * shape_.latent + dim - shape_.branch);
        const uint16_t half = dim < shape_.branch
                                  ? side_[static_cast<size_t>(row * shape_.branch + dim)]
                                  : sketch_[from_sketch];
        sum += double{q[dim] * shape_.scale} * double{half_to_float(half)};
      }
      ASSERT_NEAR(out[static_cast<size_t>((row - 3) * padded() + head)], sum,
                  implementation_.tolerance * 3);
    }
  }
}

TEST_P(ScanTest, FiresExactlyWhereAScoreReachesItsThreshold) {
  make_index(200);
  make_queries();
  std::vector<float> scores(static_cast<size_t>(200 * padded()));
  kernels().scan_scores(queries(), index_, 0, 200, scores.data());
  const auto score_of = [&](int64_t row, int64_t head) {
    return scores[static_cast<size_t>(row * padded() + head)];
  };
  for (int64_t head = 0; head < shape_.n_head; head += 3) {
    const int64_t chosen = (7 * head + 65) % 200;
    for (const bool reached : {true, false}) {
      std::fill(threshold_.begin(), threshold_.end(), kInfinity);
      const float at = score_of(chosen, head);
      threshold_[static_cast<size_t>(head)] = reached ? at : std::nextafter(at, kInfinity);
      std::vector<uint64_t> fired(4, ~uint64_t{0});
      kernels().scan(queries(), index_, 0, 128, fired.data());
      kernels().scan(queries(), index_, 128, 200, fired.data());
      for (int64_t row = 0; row < 256; ++row) {
        const bool bit = fired[static_cast<size_t>(row / 64)] >> row % 64 & 1;
        const bool want = row < 200 && score_of(row, head) >= threshold_[static_cast<size_t>(head)];
        ASSERT_EQ(bit, want) << "row " << row << ", head " << head;
      }
      ASSERT_EQ(fired[static_cast<size_t>(chosen / 64)] >> chosen % 64 & 1, reached ? 1u : 0u);
    }
  }
}

std::string name_of(const ::testing::TestParamInfo<MlaTest::ParamType>& info) {
  const auto& [implementation, type, shape] = info.param;
  return implementations()[implementation].name + "_" + std::string(row_type_name(type)) + "_" +
         std::to_string(std::get<0>(shape)) + "_" + std::to_string(std::get<1>(shape)) + "_" +
         std::to_string(std::get<2>(shape));
}

INSTANTIATE_TEST_SUITE_P(All, MlaTest,
                         ::testing::Combine(::testing::Range(size_t{0}, implementations().size()),
                                            ::testing::Values(RowType::kF16, RowType::kF32),
                                            ::testing::ValuesIn(kShapes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, ScanTest,
                         ::testing::Combine(::testing::Range(size_t{0}, implementations().size()),
                                            ::testing::Values(RowType::kF16),
                                            ::testing::ValuesIn(kShapes)),
                         name_of);

}  // namespace
}  // namespace ctxzip::testing
