#include "eval/summary.h"

#include <gtest/gtest.h>

namespace ctxzip::eval {
namespace {

const std::vector<std::string> kMetrics{"substring"};

AnswerRecord record(const std::string& context, const std::string& method, double score,
                    int64_t kv_bytes = 100) {
  AnswerRecord record{.key = {.context = context, .method = method}};
  record.scores = {score};
  record.kv_bytes = kv_bytes;
  return record;
}

// Two contexts: full has 2 of 2 and 0 of 1, kvzip 1 of 2 and 1 of 1.
std::vector<AnswerRecord> records() {
  return {record("a", "full", 1, 100), record("a", "full", 1, 100), record("a", "kvzip", 1, 30),
          record("a", "kvzip", 0, 30), record("b", "full", 0, 300), record("b", "kvzip", 1, 90)};
}

TEST(Summary, MeansOverQuestionsAndBytesOverContexts) {
  const auto summaries = summarise(records(), kMetrics, 0);
  ASSERT_EQ(summaries.size(), 2u);
  EXPECT_EQ(summaries[0].method, "full");
  EXPECT_EQ(summaries[1].method, "kvzip");
  EXPECT_EQ(summaries[1].n_contexts, 2);
  EXPECT_EQ(summaries[1].n_questions, 3);
  EXPECT_DOUBLE_EQ(summaries[0].metrics[0].mean, 2.0 / 3);
  EXPECT_DOUBLE_EQ(summaries[1].metrics[0].mean, 2.0 / 3);
  EXPECT_DOUBLE_EQ(summaries[0].kv_bytes, 200);
  EXPECT_DOUBLE_EQ(summaries[1].kv_bytes, 60);
}

TEST(Summary, AnswersThatTheLimitEndedAreCounted) {
  auto some = records();
  for (AnswerRecord& record : some) record.stop_reason = "end";
  EXPECT_EQ(cut_full_answers(summarise(some, kMetrics, 0)), nullptr);
  some[3].stop_reason = "length";  // kvzip's
  EXPECT_EQ(cut_full_answers(summarise(some, kMetrics, 0)), nullptr);
  some[0].stop_reason = "length";
  const auto summaries = summarise(some, kMetrics, 0);
  ASSERT_EQ(cut_full_answers(summaries), summaries.data());
  EXPECT_EQ(summaries[0].n_cut, 1);
  EXPECT_EQ(summaries[1].n_cut, 1);
  EXPECT_EQ(to_json(summaries[0])["n_cut"], 1);
}

TEST(Summary, RelativeIsTheRatioOfMeans) {
  const auto summaries = summarise(records(), kMetrics, 0);
  EXPECT_EQ(summaries[0].metrics[0].relative, 1.0);
  EXPECT_EQ(summaries[1].metrics[0].relative, 1.0);
  ASSERT_TRUE(summaries[1].metrics[0].relative_interval);
  EXPECT_LE(summaries[1].metrics[0].relative_interval->low, 0.5);
}

TEST(Summary, NoRelativeWithoutFullOrWhenFullFails) {
  auto without = records();
  std::erase_if(without, [](const AnswerRecord& r) { return r.key.method == "full"; });
  EXPECT_EQ(summarise(without, kMetrics, 0)[0].metrics[0].relative, std::nullopt);

  std::vector<AnswerRecord> failing;
  for (int context = 0; context < 25; ++context) {
    const std::string name = "c" + std::to_string(context);
    failing.push_back(record(name, "full", context == 0 ? 1 : 0));  // 4 points
    failing.push_back(record(name, "kvzip", 1));
  }
  const auto summaries = summarise(failing, kMetrics, 0);
  EXPECT_EQ(summaries[1].metrics[0].relative, std::nullopt);
  EXPECT_TRUE(to_json(summaries[1])["metrics"]["substring"]["relative"].is_null());
}

TEST(Summary, TheSameRecordsAndSeedGiveTheSameFigures) {
  const auto json = [](uint64_t seed) {
    std::string text;
    for (const auto& summary : summarise(records(), kMetrics, seed))
      text += to_line(to_json(summary));
    return text;
  };
  EXPECT_EQ(json(5), json(5));
}

}  // namespace
}  // namespace ctxzip::eval
