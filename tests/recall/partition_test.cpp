#include "recall/partition.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace ctxzip::testing {
namespace {

using Rows = std::vector<uint32_t>;

TEST(PartitionTest, KeepsSinksAndTheLargest) {
  const std::vector<float> sigma = {9, 0, 1, 5, 3, 5, 2, 7};
  EXPECT_EQ(select_rows(sigma, {.ratio = 0.25, .n_sinks = 1}), (Rows{0, 3, 7}));
  EXPECT_EQ(select_rows(sigma, {.ratio = 0.25, .n_sinks = 0}), (Rows{0, 7}));
  EXPECT_EQ(select_rows(sigma, {.ratio = 0.25, .n_sinks = 1, .n_recent = 2}),
            (Rows{0, 3, 5, 6, 7}));
}

TEST(PartitionTest, TiesGoToTheLowerRow) {
  const std::vector<float> sigma = {1, 2, 2, 2, 2, 1};
  EXPECT_EQ(select_rows(sigma, {.ratio = 0.34, .n_sinks = 0}), (Rows{1, 2}));
  const std::vector<float> endless(6, std::numeric_limits<float>::infinity());
  EXPECT_EQ(select_rows(endless, {.ratio = 0.5, .n_sinks = 1}), (Rows{0, 1, 2, 3}));
}

TEST(PartitionTest, SmallAndWholeSets) {
  EXPECT_TRUE(select_rows({}, {}).empty());
  const std::vector<float> one = {0};
  EXPECT_EQ(select_rows(one, {}), (Rows{0}));
  EXPECT_EQ(select_rows(one, {.n_sinks = 0}), (Rows{0}));
  const std::vector<float> sigma = {3, 1, 2, 0, 5, 4};
  EXPECT_EQ(select_rows(sigma, {.ratio = 1, .n_sinks = 2}), (Rows{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(select_rows(sigma, {.ratio = 0.001, .n_sinks = 2}), (Rows{0, 1, 4}));
  EXPECT_EQ(select_rows(sigma, {.ratio = 0.001, .n_sinks = 9}), (Rows{0, 1, 2, 3, 4, 5}));
}

TEST(PartitionTest, BudgetIsRounded) {
  EXPECT_EQ(rows_to_keep(0, 0.5), 0);
  EXPECT_EQ(rows_to_keep(4096, 1.0 / 32), 128);
  EXPECT_EQ(rows_to_keep(47, 1.0 / 32), 1);
  EXPECT_EQ(rows_to_keep(48, 1.0 / 32), 2);
  EXPECT_EQ(rows_to_keep(1, 1.0 / 32), 1);
}

}  // namespace
}  // namespace ctxzip::testing
