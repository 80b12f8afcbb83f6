#include "eval/run_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctxzip/error.h"

namespace ctxzip::eval {
namespace {

const std::vector<std::string> kMetrics{"substring", "f1"};

Json header() {
  return {{"record", "header"},
          {"format", "ctxzip-eval"},
          {"data", {{"file", "x.json"}, {"bytes", 12}}},
          {"ratios", {0.3, 0.5}},
          {"seed", 4}};
}

// Three contexts of 2, 1 and 3 questions under two variants.
RunPlan plan() {
  RunPlan plan;
  int question = 0;
  for (const int n_questions : {2, 1, 3}) {
    std::vector<RecordKey> keys;
    const std::string context = "c" + std::to_string(plan.size());
    for (const double ratio : {0.3, 1.0 / 3}) {
      for (int at = 0; at < n_questions; ++at) {
        keys.push_back({context, "q" + std::to_string(question + at), "kvzip", ratio});
      }
    }
    question += n_questions;
    plan.push_back(std::move(keys));
  }
  return plan;
}

// A record whose values depend on its place only, as those of a deterministic run do.
AnswerRecord record_at(const RecordKey& key, size_t number) {
  AnswerRecord record{.key = key};
  record.output = "line\nbreak \"quoted\" \u00fc " + std::to_string(number);
  record.gold = {"one", "two"};
  record.scores = {static_cast<double>(number % 2), 1.0 / (1.0 + static_cast<double>(number))};
  record.context_tokens = 100;
  record.pairs_kept = 30;
  record.pairs_total = 100;
  record.kv_bytes = 3000;
  record.kv_bytes_full = 10000;
  record.output_tokens = 3;
  record.stop_reason = "end";
  record.times = {.prefill_s = 0.1, .prompt_s = 1e-3, .n_threads = 2};
  return record;
}

// The run itself: everything the log lacks.
void finish(RunLog& log) {
  const RunPlan all = plan();
  size_t number = log.records().size();
  for (size_t context = log.n_contexts_done(); context < all.size(); ++context) {
    std::vector<AnswerRecord> records;
    for (const RecordKey& key : all[context]) records.push_back(record_at(key, number++));
    log.append_context(records);
  }
}

class RunLogTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(testing::TempDir()) /
             (std::string("run_log_") +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl"))
                .string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string content() const {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void set_content(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }
  std::string whole_run() {
    RunLog log(path_, header(), plan(), kMetrics);
    finish(log);
    return content();
  }
  Error open_error(const Json& with_header) {
    try {
      RunLog(path_, with_header, plan(), kMetrics);
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "opened";
    return Error(ErrorKind::kIo, "");
  }

  std::string path_;
};

TEST_F(RunLogTest, OneHeaderAndALineForEachRecord) {
  const std::string text = whole_run();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1 + 12);
  EXPECT_EQ(text.substr(0, text.find('\n')), to_line(header()));
  RunLog log(path_, header(), plan(), kMetrics);
  EXPECT_EQ(log.n_contexts_done(), 3u);
  ASSERT_EQ(log.records().size(), 12u);
  const AnswerRecord expected = record_at(plan()[2][1], 7);
  EXPECT_EQ(to_line(to_json(log.records()[7], kMetrics)), to_line(to_json(expected, kMetrics)));
  EXPECT_EQ(content(), text);
}

// Around every line's end and at many bytes between (each try syncs the disk several times).
TEST_F(RunLogTest, OneWithoutAContextIsNotLeftBehind) {
  { RunLog log(path_, header(), plan(), kMetrics); }
  EXPECT_FALSE(std::filesystem::exists(path_));
  Json other = header();
  other["seed"] = 5;
  EXPECT_NO_THROW(RunLog(path_, other, plan(), kMetrics));
}

TEST_F(RunLogTest, GoesOnFromAnyByte) {
  const std::string whole = whole_run();
  for (size_t length = 0; length <= whole.size(); ++length) {
    const bool near_end_of_line =
        whole.substr(length > 0 ? length - 1 : 0, 3).find('\n') != std::string::npos;
    if (length > 20 && length % 19 != 0 && !near_end_of_line) continue;
    set_content(whole.substr(0, length));
    RunLog log(path_, header(), plan(), kMetrics);
    EXPECT_TRUE(whole.starts_with(content()));
    finish(log);
    ASSERT_EQ(content(), whole) << "cut at byte " << length;
    ASSERT_EQ(log.records().size(), 12u);
  }
}

TEST_F(RunLogTest, KeepsWholeContextsOnly) {
  const std::string whole = whole_run();
  size_t end = 0;
  for (int line = 0; line < 1 + 4 + 1; ++line) end = whole.find('\n', end) + 1;
  set_content(whole.substr(0, end));  // header, the first context, one record of the second
  const RunLog log(path_, header(), plan(), kMetrics);
  EXPECT_EQ(log.n_contexts_done(), 1u);
  EXPECT_EQ(log.records().size(), 4u);
  const std::string left = content();
  EXPECT_EQ(std::count(left.begin(), left.end(), '\n'), 1 + 4);
}

TEST_F(RunLogTest, RefusesAnotherRunAndNamesTheDifference) {
  const std::string whole = whole_run();
  Json other = header();
  other["data"]["bytes"] = 13;
  EXPECT_EQ(open_error(other).kind(), ErrorKind::kMismatch);
  EXPECT_NE(std::string(open_error(other).what()).find("data.bytes is 12 in the file, 13 now"),
            std::string::npos);
  other = header();
  other["ratios"] = {0.3};
  EXPECT_NE(
      std::string(open_error(other).what()).find("ratios is [0.3,0.5] in the file, [0.3] now"),
      std::string::npos);
  EXPECT_EQ(content(), whole);
}

TEST_F(RunLogTest, HeaderDifferenceInEveryDirection) {
  const Json base = header();
  EXPECT_EQ(header_difference(base, base), "");
  Json more = base;
  more["chunk_tokens"] = 512;
  EXPECT_EQ(header_difference(base, more), "chunk_tokens is missing in the file, 512 now");
  EXPECT_EQ(header_difference(more, base), "chunk_tokens is 512 in the file, missing now");
  Json fewer = base;
  fewer["ratios"] = Json::array();
  EXPECT_EQ(header_difference(base, fewer), "ratios is [0.3,0.5] in the file, [] now");
  EXPECT_EQ(header_difference(fewer, base), "ratios is [] in the file, [0.3,0.5] now");
}

TEST_F(RunLogTest, LeavesOtherFilesAlone) {
  for (const char* text :
       {"notes", "notes\n", "{\"a\": 1}\n", "[]\n", "{\"record\":\"header\"}\n"}) {
    set_content(text);
    EXPECT_EQ(open_error(header()).kind(), ErrorKind::kCorruptFile) << text;
    EXPECT_EQ(content(), text);
  }
}

TEST_F(RunLogTest, RefusesDamageInside) {
  const std::string whole = whole_run();
  std::string damaged = whole;
  const size_t line = whole.find('\n') + 1;
  damaged[line] = '#';
  set_content(damaged);
  EXPECT_EQ(open_error(header()).kind(), ErrorKind::kCorruptFile);
  EXPECT_NE(std::string(open_error(header()).what()).find("line 2"), std::string::npos);
  EXPECT_EQ(content(), damaged);

  damaged = whole;
  damaged.replace(whole.find("\"q1\""), 4, "\"q9\"");
  set_content(damaged);
  EXPECT_NE(std::string(open_error(header()).what()).find("line 3"), std::string::npos);

  set_content(whole + whole.substr(line));
  EXPECT_NE(std::string(open_error(header()).what()).find("line 14"), std::string::npos);
}

TEST_F(RunLogTest, OneWriterAtATime) {
  const RunLog log(path_, header(), plan(), kMetrics);
  EXPECT_EQ(open_error(header()).kind(), ErrorKind::kIo);
}

TEST_F(RunLogTest, PathsThatCannotBeWritten) {
  path_ = testing::TempDir();
  EXPECT_EQ(open_error(header()).kind(), ErrorKind::kIo);
  path_ = "/dev/null";
  EXPECT_EQ(open_error(header()).kind(), ErrorKind::kIo);
  path_ = testing::TempDir() + "no/such/folder/x.jsonl";
  EXPECT_EQ(open_error(header()).kind(), ErrorKind::kIo);
}

}  // namespace
}  // namespace ctxzip::eval
