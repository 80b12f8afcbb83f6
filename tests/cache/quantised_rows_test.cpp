// Quantising rows and back.
#include "cache/quantised_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/half.h"

namespace ctxzip {
namespace {

constexpr uint32_t kSeed = 20250731;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Stored = std::vector<std::byte>;

Stored keys_of(const QuantisedLayout& layout, const DenseRows& rows) {
  Stored bytes(static_cast<size_t>(layout.key_bytes(rows.n_rows)), std::byte{0xa5});
  quantise_keys(layout, rows, bytes.data());
  return bytes;
}

Stored values_of(const QuantisedLayout& layout, const DenseRows& rows) {
  Stored bytes(static_cast<size_t>(layout.value_bytes(rows.n_rows)), std::byte{0xa5});
  quantise_values(layout, rows, bytes.data());
  return bytes;
}

// (n_rows, head_dim), rounded to float.
std::vector<float> keys_back(const QuantisedLayout& layout, const DenseRows& rows) {
  const Stored keys = keys_of(layout, rows);
  std::vector<float> out;
  for (int64_t row = 0; row < rows.n_rows; ++row) {
    for (int64_t channel = 0; channel < layout.head_dim; ++channel) {
      out.push_back(static_cast<float>(key_value(layout, keys.data(), row, channel)));
    }
  }
  return out;
}

std::vector<float> values_back(const QuantisedLayout& layout, const DenseRows& rows) {
  const Stored values = values_of(layout, rows);
  std::vector<float> out;
  for (int64_t row = 0; row < rows.n_rows; ++row) {
    for (int64_t channel = 0; channel < layout.head_dim; ++channel) {
      out.push_back(static_cast<float>(value_value(layout, values.data(), row, channel)));
    }
  }
  return out;
}

// (n_rows, head_dim), standard normal around `mean`.
std::vector<float> random_rows(int64_t n_rows, int64_t head_dim, float mean = 0) {
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal(mean);
  std::vector<float> rows(static_cast<size_t>(n_rows * head_dim));
  for (float& value : rows) value = normal(random);
  return rows;
}

class QuantisedRowsTest : public ::testing::TestWithParam<RowType> {
 protected:
  QuantisedLayout layout(int64_t head_dim) const { return {GetParam(), head_dim}; }

  // The error that `n` values may have, `step` apart from `first`: half a code, f16's roundings of
  // scale and min, float32's of the arithmetic.
  double tolerance(const std::vector<float>& values, int64_t first, int64_t step, int64_t n) const {
    float smallest = kInfinity;
    float largest = -kInfinity;
    for (int64_t at = 0; at < n; ++at) {
      const float value = values[static_cast<size_t>(first + at * step)];
      smallest = std::min(smallest, value);
      largest = std::max(largest, value);
    }
    const double max_abs = std::max(std::abs(double{smallest}), std::abs(double{largest}));
    const double range = double{largest} - double{smallest} + max_abs * 0x1p-10;
    return 0.5 * range / layout(8).max_code() * (1 + 0x1p-9) + max_abs * 0x1p-20 + 0x1p-24;
  }
};

TEST_P(QuantisedRowsTest, ValuesComeBackWithinHalfACode) {
  for (const int64_t head_dim : {8, 64, 72, 128, 256}) {
    for (const int64_t n : {1, 2, 31, 32, 33, 63, 64, 65, 130}) {
      SCOPED_TRACE(::testing::Message() << "head_dim " << head_dim << ", " << n << " rows");
      const std::vector<float> rows = random_rows(n, head_dim, 3);
      const DenseRows dense = {RowType::kF32, rows.data(), n};
      const std::vector<float> keys = keys_back(layout(head_dim), dense);
      const std::vector<float> values = values_back(layout(head_dim), dense);
      for (int64_t row = 0; row < n; ++row) {
        const double of_row = tolerance(rows, row * head_dim, 1, head_dim);
        const int64_t group = row / kGroupRows * kGroupRows;
        for (int64_t dim = 0; dim < head_dim; ++dim) {
          const auto at = static_cast<size_t>(row * head_dim + dim);
          const double of_channel =
              tolerance(rows, group * head_dim + dim, head_dim, std::min(kGroupRows, n - group));
          ASSERT_NEAR(keys[at], rows[at], of_channel) << "key " << row << ", " << dim;
          ASSERT_NEAR(values[at], rows[at], of_row) << "value " << row << ", " << dim;
        }
      }
    }
  }
}

TEST_P(QuantisedRowsTest, HalvesGiveTheBytesOfTheirFloats) {
  constexpr int64_t kRows = 70;
  std::vector<float> rows = random_rows(kRows, 64);
  std::vector<uint16_t> halves(rows.size());
  to_f16(rows.data(), halves.data(), static_cast<int64_t>(rows.size()));
  for (size_t at = 0; at < rows.size(); ++at) rows[at] = half_to_float(halves[at]);
  const DenseRows from_floats = {RowType::kF32, rows.data(), kRows};
  const DenseRows from_halves = {RowType::kF16, halves.data(), kRows};
  EXPECT_EQ(keys_of(layout(64), from_floats), keys_of(layout(64), from_halves));
  EXPECT_EQ(values_of(layout(64), from_floats), values_of(layout(64), from_halves));
}

TEST_P(QuantisedRowsTest, NoRowsTakeNoBytes) {
  EXPECT_EQ(layout(64).key_bytes(0), 0);
  EXPECT_EQ(layout(64).value_bytes(0), 0);
  const DenseRows none = {RowType::kF16, nullptr, 0};
  quantise_keys(layout(64), none, nullptr);
  quantise_values(layout(64), none, nullptr);
}

TEST_P(QuantisedRowsTest, ConstantsThatHalvesHoldAreExact) {
  constexpr int64_t kRows = 65;
  for (const float value : {0.0f, -0.0f, 1.0f, -2.5f, 65504.0f, -65504.0f, 0x1p-24f, -0x1p-24f}) {
    const std::vector<float> rows(kRows * 16, value);
    const DenseRows dense = {RowType::kF32, rows.data(), kRows};
    EXPECT_EQ(keys_back(layout(16), dense), rows) << value;
    EXPECT_EQ(values_back(layout(16), dense), rows) << value;
  }
}

TEST_P(QuantisedRowsTest, OutlierChannelsDoNotSpoilOthersOfAKey) {
  constexpr int64_t kRows = 64;
  constexpr int64_t kDim = 64;
  const std::vector<float> rows = random_rows(kRows, kDim);
  std::vector<float> with_outliers = rows;
  for (int64_t row = 0; row < kRows; ++row) {
    with_outliers[static_cast<size_t>(row * kDim + 5)] *= 50;
    with_outliers[static_cast<size_t>(row * kDim + 41)] += 300;
  }
  const std::vector<float> keys = keys_back(layout(kDim), {RowType::kF32, rows.data(), kRows});
  const std::vector<float> others =
      keys_back(layout(kDim), {RowType::kF32, with_outliers.data(), kRows});
  for (size_t at = 0; at < keys.size(); ++at) {
    if (at % kDim == 5 || at % kDim == 41) continue;
    ASSERT_EQ(keys[at], others[at]);
  }
}

TEST_P(QuantisedRowsTest, NumbersThatHalvesCannotHoldAreClamped) {
  constexpr int64_t kRows = 33;
  std::vector<float> rows = random_rows(kRows, 8);
  rows[3] = kInfinity;
  rows[4] = -kInfinity;
  rows[9] = std::numeric_limits<float>::quiet_NaN();
  rows[20] = 1e30f;
  const DenseRows dense = {RowType::kF32, rows.data(), kRows};
  for (const std::vector<float>& back :
       {keys_back(layout(8), dense), values_back(layout(8), dense)}) {
    for (const float value : back) ASSERT_TRUE(std::isfinite(value));
    EXPECT_NEAR(back[3], 65504, 64);
    EXPECT_NEAR(back[4], -65504, 64);
    EXPECT_NEAR(back[20], 65504, 64);
  }
}

TEST_P(QuantisedRowsTest, SizesAreThoseOfTheFormat) {
  for (const int64_t head_dim : {64, 128}) {
    const QuantisedLayout of = layout(head_dim);
    const double codes = static_cast<double>(2 * head_dim * of.bits()) / 8;
    const double pair = static_cast<double>(of.key_bytes(6400) + of.value_bytes(6400)) / 6400;
    EXPECT_EQ(pair - codes, head_dim == 64 ? 8 : 12);
    EXPECT_EQ(of.key_bytes(1), 4 * head_dim + 4 * of.bits() * head_dim);
    EXPECT_EQ(of.value_bytes(33), 2 * (128 + 4 * of.bits() * head_dim));
  }
}

// The order of codes, by hand: a key channel that counts rows and a value row that counts channels.
TEST_P(QuantisedRowsTest, CodesLieWhereTheFormatSays) {
  const QuantisedLayout of = layout(8);
  const bool q8 = GetParam() == RowType::kQ8;
  std::vector<float> rows(16 * 8);
  for (size_t row = 0; row < 16; ++row) rows[row * 8 + 5] = static_cast<float>(row);
  const Stored keys = keys_of(of, {RowType::kF32, rows.data(), 16});
  const auto code_of_row_9 = keys[32 + (q8 ? 128 + 9 * 4 + 1 : 9 * 4 + 1)];
  EXPECT_EQ(code_of_row_9, q8 ? std::byte{9 * 17} : std::byte{9 << 4});

  std::vector<float> counting(7 * 8);
  for (size_t dim = 0; dim < 8; ++dim) counting[6 * 8 + dim] = static_cast<float>(2 * dim + 1);
  counting[6 * 8] = 0;
  const Stored values = values_of(of, {RowType::kF32, counting.data(), 7});
  const auto code_of_dim_3 = values[128 + (q8 ? 32 + 3 * 4 + 2 : 3 * 4 + 2)];
  EXPECT_EQ(code_of_dim_3, q8 ? std::byte{7 * 17} : std::byte{7 << 4});
}

INSTANTIATE_TEST_SUITE_P(Types, QuantisedRowsTest, ::testing::Values(RowType::kQ8, RowType::kQ4),
                         [](const ::testing::TestParamInfo<RowType>& type) {
                           return std::string(row_type_name(type.param));
                         });

}  // namespace
}  // namespace ctxzip
