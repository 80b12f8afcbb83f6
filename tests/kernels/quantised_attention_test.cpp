// Every implementation of the attention kernels over quantised rows, against the exact answer on
// what the codes stand for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>
#include <vector>

#include "attention_fixture.h"
#include "kernels/half.h"
#include "kernels/quantised_layout.h"

namespace ctxzip::testing {
namespace {

class QuantisedAttentionTest : public AttentionTest {
 protected:
  QuantisedLayout layout() const { return {shape_.row_type, shape_.head_dim}; }
  bool rounds_factors() const { return implementation_.name.starts_with("tuned"); }

  StoredRows quantised_rows(int64_t n, double k_scale = 1) {
    StoredRows rows = random_rows(n, k_scale);
    rows.quantise();
    return rows;
  }

  // Tuned decode rounds query * key scale and weight * value scale to 16 bits (q8) or 8 bits (q4),
  // each number off by at most half a step and independent of the others. A code is at most
  // max_code / 2 from the middle, a uniform one max_code / sqrt(12) in the mean square; the
  // rounding is step / sqrt(12). Six standard deviations of a sum of n products are then sqrt(n) *
  // step * max_code / 2.
  void allow_for_rounded_factors(const float* q, const StoredRows& rows, int64_t n_rows) {
    if (!rounds_factors() || n_rows == 0) return;
    const Segment segment = rows.segment(n_rows);
    const double key_steps = shape_.row_type == RowType::kQ8 ? 32767 : 127;
    const double step = largest_key_factor(q, segment) / key_steps;
    score_slack_ = std::sqrt(shape_.head_dim) * step * layout().max_code() / 2;
    // Dithered weights are off by up to a step: twice as much is allowed.
    const double weight_steps = (shape_.row_type == RowType::kQ8 ? 32767 : 255) / 2.0;
    const double value_step = largest_value_scale(segment) / weight_steps;
    output_slack_ = std::sqrt(static_cast<double>(n_rows)) * value_step * layout().max_code() / 2;
  }

  double largest_key_factor(const float* q, const Segment& segment) const {
    double largest = 0;
    for (int64_t row = 0; row < segment.n_rows; row += kGroupRows) {
      const auto* scales =
          static_cast<const std::byte*>(segment.k) + layout().key_group(row / kGroupRows);
      for (int64_t at = 0; at < shape_.group * shape_.head_dim; ++at) {
        const double scale = detail::read_half(scales, at % shape_.head_dim);
        largest = std::max(largest, std::abs(double{q[at]} * double{shape_.scale}) * scale);
      }
    }
    return largest;
  }

  double largest_value_scale(const Segment& segment) const {
    double largest = 0;
    for (int64_t row = 0; row < segment.n_rows; ++row) {
      const auto* scales =
          static_cast<const std::byte*>(segment.v) + layout().value_strip(row / kStripRows);
      largest = std::max(largest, detail::read_half(scales, row % kStripRows));
    }
    return largest;
  }

  std::vector<float> partial(const float* q, const Segment& segment, int64_t begin, int64_t end) {
    std::vector<float> result(static_cast<size_t>(shape_.group * (shape_.head_dim + 2)));
    kernels().attend_block(shape_, q, segment, begin, end, result.data());
    return result;
  }
};

// Around the sizes of the layout and of the kernels: row steps (16), strips (32), groups (64).
const std::vector<int64_t> kRowCounts = {0,  1,  2,  15, 16, 17,  31,  32, 33,
                                         63, 64, 65, 95, 97, 128, 129, 515};

TEST_P(QuantisedAttentionTest, BlockMatchesExactForEveryRowCount) {
  for (const int64_t n : kRowCounts) {
    if (big_group() && n > 100) break;
    SCOPED_TRACE(n);
    const StoredRows rows = quantised_rows(n);
    const std::vector<float> q = random_queries(1);
    allow_for_rounded_factors(q.data() + 1, rows, n);
    const Segment segment = rows.segment(n);
    const std::vector<ExactRow> all = exact_rows(rows, segment);
    expect_block(q.data() + 1, segment, 0, n, all);
    if (n < 2) continue;
    expect_block(q.data() + 1, segment, 1, n, all);
    expect_block(q.data() + 1, segment, n / 3, n - 1, all);
    expect_block(q.data() + 1, segment, n / 2, n / 2, all);
  }
}

TEST_P(QuantisedAttentionTest, AnyRangeMatchesExact) {
  const int64_t n = 150;
  const StoredRows rows = quantised_rows(n, 2);
  const std::vector<float> q = random_queries(1);
  allow_for_rounded_factors(q.data() + 1, rows, n);
  const Segment segment = rows.segment(n);
  const std::vector<ExactRow> all = exact_rows(rows, segment);
  for (const int64_t begin : {0, 5, 16, 31, 33, 64, 100, 149}) {
    if (big_group() && begin % 33 != 0) continue;
    for (const int64_t length : {1, 7, 30, 64, 90}) {
      if (begin + length > n) continue;
      SCOPED_TRACE(::testing::Message() << begin << " and " << length << " rows");
      expect_block(q.data() + 1, segment, begin, begin + length, all);
    }
  }
}

TEST_P(QuantisedAttentionTest, MergedBlocksMatchTheWholeSegment) {
  const int64_t n = big_group() ? 200 : 1200;
  const StoredRows rows = quantised_rows(n, 3);
  const std::vector<float> q = random_queries(1);
  allow_for_rounded_factors(q.data() + 1, rows, n);
  const Segment segment = rows.segment(n);
  const std::vector<int64_t> cuts = {0, 0, 1, 130, 130, n - 7, n};
  std::vector<float> partials;
  for (size_t block = 0; block + 1 < cuts.size(); ++block) {
    const std::vector<float> one = partial(q.data() + 1, segment, cuts[block], cuts[block + 1]);
    partials.insert(partials.end(), one.begin(), one.end());
  }
  GuardedFloats out(static_cast<size_t>(shape_.group * shape_.head_dim));
  kernels().merge_blocks(shape_, partials.data(), shape_.group * (shape_.head_dim + 2),
                         static_cast<int64_t>(cuts.size()) - 1, out.data());
  EXPECT_TRUE(out.guards_intact());
  for (int64_t head = 0; head < shape_.group; ++head) {
    const ExactHead exact = exact_attention(q.data() + 1 + head * shape_.head_dim, shape_.head_dim,
                                            double{shape_.scale}, exact_rows(rows, segment));
    for (int64_t dim = 0; dim < shape_.head_dim; ++dim) {
      ASSERT_NEAR(out[static_cast<size_t>(head * shape_.head_dim + dim)],
                  exact.out[static_cast<size_t>(dim)],
                  score_tolerance(exact) * exact.max_abs_v + output_slack_);
    }
  }
}

// Tiles multiply floats, so that nothing but float32's roundings is allowed.
TEST_P(QuantisedAttentionTest, TileMatchesExactForEveryRowCount) {
  for (const int64_t n : kRowCounts) {
    if (n > 200 || (big_group() && n % 5 != 0)) continue;
    SCOPED_TRACE(n);
    const StoredRows rows = quantised_rows(n);
    const int64_t n_tokens = 1 + n % 5;
    const Segment segment = rows.segment(n);
    expect_tile(random_queries(n_tokens), n_tokens,
                {.segments = {&segment, 1}, .n_lse_segments = 1}, {exact_rows(rows, segment)});
  }
}

TEST_P(QuantisedAttentionTest, TileTakesQuantisedAndDenseSegmentsTogether) {
  const StoredRows context = quantised_rows(150);
  for (const RowType own_type : {RowType::kF16, RowType::kF32}) {
    StoredRows own(own_type, shape_.head_dim, 70);
    own.randomise(random_);
    const std::vector<Segment> segments = {context.segment(150), Segment(), own.segment(70)};
    const std::vector<std::vector<ExactRow>> rows = {
        exact_rows(context, segments[0]), {}, exact_rows(own, segments[2])};
    const AttentionShape quantised = shape_;
    shape_.row_type = own_type;
    for (const int64_t n_tokens : {1, 5, 32}) {
      if (n_tokens > 1 && n_tokens * shape_.group > 40) continue;
      SCOPED_TRACE(n_tokens);
      expect_tile(random_queries(n_tokens), n_tokens, {segments, 2, 33, 1, {}}, rows);
      const std::vector<int64_t> hidden = {129, -21, -21};
      expect_tile(random_queries(n_tokens), n_tokens, {segments, 2, 33, 1, hidden}, rows);
    }
    shape_ = quantised;
  }
}

TEST_P(QuantisedAttentionTest, ResultsDependOnNeitherAddressesNorPadding) {
  const int64_t n_tokens = 3;
  const std::vector<float> q = random_queries(n_tokens);
  for (const int64_t n : {1, 33, 150}) {
    std::vector<std::vector<float>> results;
    for (const size_t misalign : {size_t{0}, size_t{1}, size_t{5}, size_t{16}}) {
      StoredRows rows(shape_.row_type, shape_.head_dim, n, misalign);
      std::mt19937 random(kSeed + 1);
      rows.randomise(random);
      rows.quantise();
      if (misalign != 0) rows.spoil_padding();
      const Segment segment = rows.segment(n);
      GuardedFloats moved_q(q.size(), misalign);
      std::copy(q.begin(), q.end(), moved_q.data());
      GuardedScratch scratch(kernels().scratch_bytes(shape_), misalign);
      std::vector<float> result = partial(moved_q.data(), segment, 0, n);
      ASSERT_EQ(result, partial(moved_q.data(), segment, 0, n));
      std::vector<float> out(static_cast<size_t>(n_tokens * shape_.group * shape_.head_dim));
      std::vector<float> lse(static_cast<size_t>(n_tokens * shape_.group));
      kernels().attend_tile(shape_, {moved_q.data(), n_tokens, token_stride()},
                            {.segments = {&segment, 1}, .n_lse_segments = 1}, out.data(),
                            shape_.group * shape_.head_dim, lse.data(), scratch.data());
      result.insert(result.end(), out.begin(), out.end());
      result.insert(result.end(), lse.begin(), lse.end());
      results.push_back(result);
    }
    for (const std::vector<float>& result : results) {
      EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
      for (const float value : result) ASSERT_FALSE(std::isnan(value));
    }
  }
}

TEST_P(QuantisedAttentionTest, ConstantRowsOfExtremeValues) {
  StoredRows rows(shape_.row_type, shape_.head_dim, 20);
  for (int64_t row = 0; row < 20; ++row) {
    for (int64_t dim = 0; dim < shape_.head_dim; ++dim) {
      rows.set_k(row, dim, -65504);
      rows.set_v(row, dim, 65504);
    }
  }
  rows.quantise();
  const Segment segment = rows.segment(20);
  const std::vector<float> q = random_queries(1);
  // The products cancel: their float32 sums err in proportion to the terms.
  double terms = 0;
  for (const float value : q) terms += std::abs(double{value} * 65504 * double{shape_.scale});
  score_slack_ = kEpsilon * terms;
  expect_block(q.data() + 1, segment, 0, 20, exact_rows(rows, segment));
  const std::vector<float> huge(q.size(), 1e38f);
  for (const float value : partial(huge.data() + 1, segment, 0, 20))
    ASSERT_FALSE(std::isnan(value));
}

// What rounded factors add to the scores, beside what the codes themselves lose, both root mean
// squares. A few channels are 50 times larger than the rest, as in Qwen2.5's keys: the worst case,
// as they alone set the step of the rounding. A share of 0.3 adds 4% to the error.
TEST_P(QuantisedAttentionTest, RoundedFactorsAddLittleToTheCodesError) {
  const int64_t n = big_group() ? 64 : 256;
  StoredRows source(RowType::kF32, shape_.head_dim, n);
  StoredRows rows(shape_.row_type, shape_.head_dim, n);
  std::normal_distribution<float> normal;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t dim = 0; dim < shape_.head_dim; ++dim) {
      const float key = normal(random_) * (dim % 37 == 5 ? 50.0f : 1.0f);
      const float value = normal(random_);
      for (StoredRows* of : {&source, &rows}) {
        of->set_k(row, dim, key);
        of->set_v(row, dim, value);
      }
    }
  }
  rows.quantise();
  const std::vector<float> q = random_queries(1);
  const float* query = q.data() + 1;
  const Segment segment = rows.segment(n);
  double codes_error = 0;
  double added_error = 0;
  for (int64_t row = 0; row < n; ++row) {
    const std::vector<float> one = partial(query, segment, row, row + 1);
    for (int64_t head = 0; head < shape_.group; ++head) {
      const float* of_head = query + head * shape_.head_dim;
      const auto score = static_cast<double>(
          one[static_cast<size_t>(head * (shape_.head_dim + 2) + shape_.head_dim)]);
      const double stored =
          exact_score(of_head, shape_.head_dim, double{shape_.scale}, {&rows, row});
      const double wanted =
          exact_score(of_head, shape_.head_dim, double{shape_.scale}, {&source, row});
      added_error += (score - stored) * (score - stored);
      codes_error += (stored - wanted) * (stored - wanted);
    }
  }
  const double share = std::sqrt(added_error / codes_error);
  RecordProperty("added_share", std::to_string(share));
  if (rounds_factors()) std::cout << "added error / codes' error: " << share << "\n";
  EXPECT_LT(share, shape_.row_type == RowType::kQ8 ? 0.03 : 0.35);
}

// The same for outputs. One row has most of the weight, the others share a mean that would be lost
// if their small weights were.
TEST_P(QuantisedAttentionTest, RoundedWeightsAddLittleToTheCodesError) {
  if (shape_.head_dim < 64) GTEST_SKIP() << "too few channels for a mean square";
  const int64_t n = 256;
  StoredRows source(RowType::kF32, shape_.head_dim, n);
  StoredRows rows(shape_.row_type, shape_.head_dim, n);
  std::normal_distribution<float> normal;
  for (int64_t row = 0; row < n; ++row) {
    for (int64_t dim = 0; dim < shape_.head_dim; ++dim) {
      const float key = row == 70 && dim == 0 ? 6.0f / shape_.scale : 0.0f;
      const float value = normal(random_) + static_cast<float>(dim % 5 - 2);
      for (StoredRows* of : {&source, &rows}) {
        of->set_k(row, dim, key);
        of->set_v(row, dim, value);
      }
    }
  }
  rows.quantise();
  const std::vector<float> q(static_cast<size_t>(shape_.group * shape_.head_dim), 1.0f);
  const Segment segment = rows.segment(n);
  const std::vector<float> result = partial(q.data(), segment, 0, n);
  const double scale{shape_.scale};
  const ExactHead stored =
      exact_attention(q.data(), shape_.head_dim, scale, exact_rows(rows, segment));
  const ExactHead wanted =
      exact_attention(q.data(), shape_.head_dim, scale, exact_rows(source, segment));
  const double sum = double{result[static_cast<size_t>(shape_.head_dim + 1)]};
  double codes_error = 0;
  double added_error = 0;
  for (size_t dim = 0; dim < stored.out.size(); ++dim) {
    added_error += std::pow(double{result[dim]} / sum - stored.out[dim], 2);
    codes_error += std::pow(stored.out[dim] - wanted.out[dim], 2);
  }
  const double share = std::sqrt(added_error / codes_error);
  if (rounds_factors()) std::cout << "added error / codes' error: " << share << "\n";
  EXPECT_LT(share, shape_.row_type == RowType::kQ8 ? 0.05 : 0.35);
}

INSTANTIATE_TEST_SUITE_P(Kernels, QuantisedAttentionTest,
                         ::testing::Combine(::testing::Range(size_t{0}, implementations().size()),
                                            ::testing::Values(RowType::kQ8, RowType::kQ4),
                                            ::testing::ValuesIn(kShapes)),
                         test_name);

}  // namespace
}  // namespace ctxzip::testing
