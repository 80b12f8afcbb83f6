// Products with unpacked weights against exact sums.
#include "kernels/matmul.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace ctxzip::testing {
namespace {

constexpr float kGuard = 12345.5f;

struct StoredType {
  ggml_type ggml;
  WeightType ours;
};
constexpr StoredType kTypes[] = {{GGML_TYPE_Q4_1, WeightType::kQ4_1},
                                 {GGML_TYPE_Q5_0, WeightType::kQ5_0},
                                 {GGML_TYPE_Q5_1, WeightType::kQ5_1},
                                 {GGML_TYPE_Q8_0, WeightType::kQ8_0}};

WeightType weight_type(ggml_type type) {
  for (const StoredType& each : kTypes) {
    if (each.ggml == type) return each.ours;
  }
  ADD_FAILURE() << ggml_type_name(type);
  return {};
}

struct Case {
  const MatmulKernels* kernels;
  ggml_type type;
  int64_t n_in, n_out, n_tokens;
};

void expect_product(const Case& test) {
  SCOPED_TRACE(::testing::Message() << test.kernels->name << " " << ggml_type_name(test.type) << " "
                                    << test.n_in << " x " << test.n_out << ", " << test.n_tokens);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(test.n_in * test.n_out));
  for (float& value : values) value = normal(random);
  std::vector<std::byte> stored(ggml_row_size(test.type, test.n_in) *
                                static_cast<size_t>(test.n_out));
  const ggml_type_traits* traits = ggml_get_type_traits(test.type);
  ggml_quantize_chunk(test.type, values.data(), stored.data(), 0, test.n_out, test.n_in, nullptr);
  traits->to_float(stored.data(), values.data(), test.n_in * test.n_out);

  const int64_t x_stride = test.n_in + 3;
  const int64_t y_stride = test.n_out + 5;
  std::vector<float> x(static_cast<size_t>(test.n_tokens * x_stride), NAN);
  for (int64_t token = 0; token < test.n_tokens; ++token) {
    for (int64_t at = 0; at < test.n_in; ++at)
      x[static_cast<size_t>(token * x_stride + at)] = normal(random);
  }
  std::vector<float> y(static_cast<size_t>(test.n_tokens * y_stride), kGuard);
  const WeightMatrix matrix = {.data = stored.data(),
                               .row_bytes = ggml_row_size(test.type, test.n_in),
                               .n_in = test.n_in,
                               .n_out = test.n_out,
                               .type = weight_type(test.type)};
  for (int64_t first = 0; first < test.n_out; first += kMatmulRows) {
    test.kernels->multiply(matrix, first, x.data(), x_stride, test.n_tokens, y.data(), y_stride);
  }
  for (int64_t token = 0; token < test.n_tokens; ++token) {
    for (int64_t out = 0; out < y_stride; ++out) {
      const float found = y[static_cast<size_t>(token * y_stride + out)];
      if (out >= test.n_out) {
        ASSERT_EQ(found, kGuard);
        continue;
      }
      double sum = 0;
      double size = 0;
      for (int64_t at = 0; at < test.n_in; ++at) {
        const double term = static_cast<double>(values[static_cast<size_t>(out * test.n_in + at)]) *
                            static_cast<double>(x[static_cast<size_t>(token * x_stride + at)]);
        sum += term;
        size += std::abs(term);
      }
      ASSERT_NEAR(found, sum, 4e-6 * size + 1e-6) << "token " << token << ", row " << out;
    }
  }
}

class MatmulTest : public ::testing::TestWithParam<const MatmulKernels*> {};

TEST(WeightBlocks, AreThoseOfGguf) {
  constexpr int64_t kValues = 512;
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(kValues);
  for (float& value : values) value = normal(random);
  for (const StoredType& type : kTypes) {
    SCOPED_TRACE(ggml_type_name(type.ggml));
    EXPECT_EQ(kBlockValues, ggml_blck_size(type.ggml));
    const size_t block_bytes = weight_block_bytes(type.ours);
    EXPECT_EQ(block_bytes, ggml_type_size(type.ggml));
    std::vector<std::byte> stored(ggml_row_size(type.ggml, kValues));
    ggml_quantize_chunk(type.ggml, values.data(), stored.data(), 0, 1, kValues, nullptr);
    std::vector<float> expected(kValues);
    ggml_get_type_traits(type.ggml)->to_float(stored.data(), expected.data(), kValues);
    float found[kBlockValues];
    for (int64_t at = 0; at < kValues; ++at) {
      const int64_t within = at % kBlockValues;
      const auto block = static_cast<size_t>(at / kBlockValues);
      if (within == 0) unpack_weights(type.ours, stored.data() + block * block_bytes, found);
      ASSERT_NEAR(found[within], expected[static_cast<size_t>(at)], 1e-6) << at;
    }
  }
}

TEST_P(MatmulTest, EveryTypeMatchesExactSums) {
  for (const StoredType& type : kTypes) {
    for (const int64_t n_tokens : {1, 2, 4, 8, 33}) {
      expect_product({GetParam(), type.ggml, 768, 40, n_tokens});
    }
  }
}

TEST_P(MatmulTest, EveryShapeMatchesExactSums) {
  for (const int64_t n_in : {32, 64, 256, 288, 576, 1056}) {
    for (const int64_t n_out : {1, 15, 16, 17, 31, 32, 33, 100}) {
      for (const int64_t n_tokens : {3, 32}) {
        expect_product({GetParam(), GGML_TYPE_Q4_1, n_in, n_out, n_tokens});
      }
    }
  }
  for (int64_t n_tokens = 1; n_tokens < 46; ++n_tokens) {
    expect_product({GetParam(), GGML_TYPE_Q8_0, 96, 33, n_tokens});
  }
}

INSTANTIATE_TEST_SUITE_P(Implementations, MatmulTest,
                         ::testing::Values(&ref_matmul_kernels(), &tuned_matmul_kernels()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace ctxzip::testing
