#include "select/heads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace ctxzip {
namespace {

// 2 layers of 2 heads; scores in the order of heads 2, 0, 3, 1.
constexpr float kScores[] = {0.8f, 0.1f, 0.9f, 0.5f};

HeadSelection selection(HeadStructure structure, int64_t n_context, int64_t n_prefix = 10) {
  return {.n_layer = 2,
          .n_kv_head = 2,
          .n_context = n_context,
          .n_prefix = n_prefix,
          .structure = structure};
}

std::vector<uint32_t> range(uint32_t begin, uint32_t end) {
  std::vector<uint32_t> rows(end - begin);
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

TEST(SelectHeads, DropKeepsWholeHeadsAndTheNewestOfOne) {
  const KeepSet kept = select_heads(selection(HeadStructure::kDrop, 100), kScores, 230);
  EXPECT_EQ(kept.at(1, 0), range(0, 100));
  EXPECT_EQ(kept.at(0, 0), range(0, 100));
  EXPECT_EQ(kept.at(1, 1), range(70, 100));
  EXPECT_TRUE(kept.at(0, 1).empty());
}

TEST(SelectHeads, DuoLeavesLowHeadsTheirEnds) {
  // 54 sinks are not in the prefix of 10; 256 newest rows.
  const KeepSet kept =
      select_heads(selection(HeadStructure::kDuo, 4000), kScores, 2 * 4000 + 2 * 310);
  EXPECT_EQ(kept.at(1, 0).size(), 4000u);
  EXPECT_EQ(kept.at(0, 0).size(), 4000u);
  std::vector<uint32_t> expected = range(0, 54);
  const std::vector<uint32_t> newest = range(4000 - 256, 4000);
  expected.insert(expected.end(), newest.begin(), newest.end());
  EXPECT_EQ(kept.at(1, 1), expected);
  EXPECT_EQ(kept.at(0, 1), expected);
}

TEST(SelectHeads, CountsAreExact) {
  for (const HeadStructure structure : {HeadStructure::kDuo, HeadStructure::kDrop}) {
    for (const int64_t n_context : {int64_t{33}, int64_t{320}, int64_t{5000}}) {
      for (int64_t n_keep = 0; n_keep <= 4 * n_context; n_keep += 1 + n_context / 7) {
        const KeepSet kept = select_heads(selection(structure, n_context), kScores, n_keep);
        EXPECT_EQ(kept.pairs_kept(), n_keep);
        for (const std::vector<uint32_t>& rows : kept.rows) {
          EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end(), std::less_equal<>()));
        }
      }
    }
  }
}

TEST(SelectHeads, SmallBudgetsAreSpreadEvenly) {
  const KeepSet kept = select_heads(selection(HeadStructure::kDuo, 800, 60), kScores, 42);
  std::vector<uint32_t> expected = {0, 1, 2, 3};  // 64 - 60 sinks
  for (const uint32_t row : range(793, 800)) expected.push_back(row);
  EXPECT_EQ(kept.at(1, 0), expected);
  EXPECT_EQ(kept.at(0, 1).size(), 10u);
}

}  // namespace
}  // namespace ctxzip
