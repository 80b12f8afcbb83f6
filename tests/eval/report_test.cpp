#include "eval/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "ctxzip/error.h"
#include "eval/report_page.h"
#include "support/temp_path.h"

namespace ctxzip::eval {
namespace {

struct LogShape {
  std::string task = "squad";
  std::string model = "Tiny";
  std::string fingerprint = "0123456789abcdef";
  std::string method = "kvzip";
  int64_t chunk = 2048;
  double score = 0.5;  // of the method; the full cache has 1
  double full_score = 1;
  int64_t n_planned = 2;
  bool has_full = true;
  int64_t max_tokens = 32;
  std::vector<std::string> metrics{"substring"};
  std::vector<int64_t> lengths = {};
};

// Two contexts with one question each, under the full cache and at ratios 0.3 and 0.1.
std::string log_text(const LogShape& shape) {
  Json header = {{"record", "header"},
                 {"format", "ctxzip-eval"},
                 {"format_version", 1},
                 {"task", shape.task},
                 {"group", "understanding"},
                 {"metrics", shape.metrics},
                 {"model", {{"name", shape.model}, {"fingerprint", shape.fingerprint}}},
                 {"data", {{"file", "d.json"}, {"contexts_xxhash64", "00"}}},
                 {"n_contexts", shape.n_planned},
                 {"seed", 0},
                 {"max_tokens", shape.max_tokens},
                 {"chunk_tokens", shape.chunk}};
  if (!shape.lengths.empty()) header["data"]["lengths"] = shape.lengths;
  std::string text = to_line(header) + "\n";
  for (const char* const context : {"c0", "c1"}) {
    for (const double ratio : {1.0, 0.3, 0.1}) {
      if (ratio == 1 && !shape.has_full) continue;
      AnswerRecord record{.key = {context, "q", ratio == 1 ? "full" : shape.method, ratio}};
      record.scores.assign(shape.metrics.size(),
                           ratio == 1 ? shape.full_score : shape.score * ratio / 0.3);
      record.kv_bytes = 1000;
      text += to_line(to_json(record, shape.metrics)) + "\n";
    }
  }
  return text;
}

class ReportTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  RunFile read(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return read_run(path_);
  }
  std::pair<ErrorKind, std::string> error_of(const std::string& text) {
    try {
      read(text);
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
      return {error.kind(), error.what()};
    }
    ADD_FAILURE() << "no error";
    return {};
  }
  Report report(const std::vector<LogShape>& shapes) {
    std::vector<RunFile> runs;
    for (const LogShape& shape : shapes) runs.push_back(read(log_text(shape)));
    return make_report(runs);
  }
  std::string path_ = test::temp_path("report_") +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
};

bool has_note(const Report& report, const std::string& part) {
  return std::any_of(report.notes.begin(), report.notes.end(),
                     [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

std::vector<std::string> file_names(const Report& report) {
  std::vector<std::string> names;
  for (const ReportFile& file : report_files(report)) names.push_back(file.name);
  return names;
}

TEST_F(ReportTest, ReadsWholeContextsOnly) {
  const std::string text = log_text({});
  EXPECT_EQ(read(text).records.size(), 6u);
  // Every place at which an interruption may cut: never more than what is whole.
  const size_t first = text.find('\n') + 1;
  size_t end_of_c0 = first;
  for (int line = 0; line < 3; ++line) end_of_c0 = text.find('\n', end_of_c0) + 1;
  for (size_t n = end_of_c0; n < text.size(); ++n) {
    const RunFile run = read(text.substr(0, n));
    ASSERT_EQ(run.records.size(), 3u) << n;
    EXPECT_EQ(run.n_contexts, 1);
  }
  EXPECT_TRUE(has_note(make_report(std::vector{read(text.substr(0, end_of_c0))}),
                       "unfinished, 1 of 2 contexts"));
  EXPECT_EQ(error_of(text.substr(0, first)).first, ErrorKind::kCorruptFile);
}

TEST_F(ReportTest, RefusesWhatIsNoLog) {
  EXPECT_EQ(error_of("").first, ErrorKind::kCorruptFile);
  EXPECT_EQ(error_of("hello\n").first, ErrorKind::kCorruptFile);
  EXPECT_EQ(error_of("{\"format\": \"other\"}\n").first, ErrorKind::kCorruptFile);
  EXPECT_EQ(error_of("{\"format\": \"ctxzip-eval\", \"format_version\": 9}\n").first,
            ErrorKind::kUnsupported);
  EXPECT_EQ(error_of("{\"format\": \"ctxzip-eval\", \"format_version\": 1}\n").first,
            ErrorKind::kCorruptFile);
  const auto damaged = error_of(log_text({}) + "{}\n");
  EXPECT_EQ(damaged.first, ErrorKind::kCorruptFile);
  EXPECT_NE(damaged.second.find("line 8"), std::string::npos);
  try {
    read_run(test::temp_path("no_such_log.jsonl"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
  }
}

TEST_F(ReportTest, ALogWithoutTheFullCacheBorrowsThatOfAnother) {
  const LogShape with_full = {.method = "kvzip", .score = 0.4, .full_score = 0.8};
  const auto relative = [&](const LogShape& more) {
    const Report both = report({more, with_full});
    for (const RelativeRow& row : both.relative) {
      if (row.method == more.method && row.ratio == 0.3) return row.mean;
    }
    return 0.0;
  };
  LogShape more = {.method = "snapkv", .score = 0.2, .has_full = false};
  EXPECT_NEAR(relative(more), 0.25, 1e-12);
  const Report joined = report({more, with_full});
  ASSERT_EQ(joined.tasks.size(), 1u);
  EXPECT_EQ(joined.tasks[0].variants.size(), 5u);  // the full cache once
  EXPECT_FALSE(has_note(joined, "nothing is relative"));
  // How others are compressed does not matter to the full cache; how it answers does.
  more.chunk = 512;
  EXPECT_NEAR(relative(more), 0.25, 1e-12);
  more.max_tokens = 16;
  EXPECT_EQ(relative(more), 0);
  EXPECT_TRUE(has_note(report({more, with_full}), "nothing is relative"));
}

TEST_F(ReportTest, LogsWithOtherMetricsAreNotMixed) {
  const LogShape two = {.method = "random", .metrics = {"f1", "substring"}};
  for (const auto& shapes : {std::vector<LogShape>{{}, two}, std::vector<LogShape>{two, {}}}) {
    try {
      report(shapes);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
      EXPECT_NE(std::string(error.what()).find("f1, substring"), std::string::npos);
    }
  }
  EXPECT_EQ(error_of(log_text({.metrics = {}})).first, ErrorKind::kCorruptFile);
}

TEST_F(ReportTest, RelativePerformanceIsTheMeanOfTasks) {
  const Report two = report({{.task = "squad", .score = 0.6}, {.task = "niah", .score = 0.9}});
  ASSERT_EQ(two.relative.size(), 2u);
  EXPECT_EQ(two.relative[0].ratio, 0.1);
  EXPECT_EQ(two.relative[1].ratio, 0.3);
  EXPECT_DOUBLE_EQ(two.relative[1].mean, 0.75);
  EXPECT_EQ(two.relative[1].tasks, (std::vector<std::string>{"squad", "niah"}));
  EXPECT_EQ(two.relative[1].setting, "");
  EXPECT_EQ(two.tasks[0].variants[0].method, "full");
  EXPECT_TRUE(has_note(two, "2 questions are few"));
}

TEST_F(ReportTest, ATaskThatTheFullCacheFailsIsLeftOut) {
  const Report one = report(
      {{.task = "squad", .score = 0.6}, {.task = "math-find", .score = 0.02, .full_score = 0.04}});
  EXPECT_DOUBLE_EQ(one.relative[1].mean, 0.6);
  EXPECT_EQ(one.relative[1].tasks, std::vector<std::string>{"squad"});
  EXPECT_TRUE(has_note(one, "math-find on Tiny: the full cache scores 0.040"));
}

TEST_F(ReportTest, MethodsOfSeveralLogsStandTogether) {
  const Report joined = report({{.method = "kvzip"}, {.method = "snapkv", .score = 0.1}});
  ASSERT_EQ(joined.tasks.size(), 1u);
  std::vector<std::string> methods;
  for (const VariantSummary& variant : joined.tasks[0].variants) methods.push_back(variant.method);
  EXPECT_EQ(methods, (std::vector<std::string>{"full", "kvzip", "kvzip", "snapkv", "snapkv"}));
  EXPECT_TRUE(has_note(report({{}, {}}), "kvzip at 0.1 is in an earlier log too"));
  EXPECT_TRUE(has_note(report({{}, {.method = "h2o", .n_planned = 3}}), "other contexts"));
}

TEST_F(ReportTest, SettingsThatDifferAreDrawnBesideEachOther) {
  const Report both = report({{.chunk = 512}, {.chunk = 2048, .score = 0.6}});
  ASSERT_EQ(both.tasks.size(), 2u);
  EXPECT_EQ(both.tasks[0].setting, "");  // the first of equally common ones
  EXPECT_EQ(both.tasks[1].setting, "chunk_tokens 2048");
  EXPECT_TRUE(has_note(both, "options where none are named: chunk_tokens 512"));
  const auto names = file_names(both);
  EXPECT_EQ(names,
            (std::vector<std::string>{"relative-tiny.svg", "score-tiny-squad.svg",
                                      "settings-tiny-squad.svg", "report.md", "report.html"}));
}

TEST_F(ReportTest, OnlyWhatIsUnusualIsNamed) {
  const Report all = report({{.task = "squad", .score = 0.5},
                             {.task = "squad", .chunk = 512, .score = 0.25},
                             {.task = "niah", .score = 0.75},
                             {.task = "niah", .score = 1, .lengths = {500}},
                             {.task = "gsm8k", .score = 0.5, .max_tokens = 320}});
  ASSERT_EQ(all.tasks.size(), 5u);
  EXPECT_EQ(all.tasks[0].setting, "");
  EXPECT_EQ(all.tasks[1].setting, "chunk_tokens 512");
  EXPECT_EQ(all.tasks[3].setting, "lengths [500]");
  EXPECT_EQ(all.tasks[4].setting, "");  // each task has answers of its own length
  // Texts of other lengths are a task more; another chunk is another row.
  std::map<std::string, RelativeRow> rows;
  for (const RelativeRow& row : all.relative) {
    if (row.ratio == 0.3) rows[row.setting] = row;
  }
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_DOUBLE_EQ(rows.at("").mean, (0.5 + 0.75 + 1 + 0.5) / 4);
  EXPECT_EQ(rows.at("").tasks,
            (std::vector<std::string>{"squad", "niah", "niah (lengths [500])", "gsm8k"}));
  EXPECT_DOUBLE_EQ(rows.at("chunk_tokens 512").mean, 0.25);
}

TEST_F(ReportTest, AFullCacheThatStoppedEarlierIsNotBorrowed) {
  std::string shorter = log_text({});
  shorter.resize(shorter.rfind("{\"record\"", shorter.size() - 2));  // one of two contexts
  const RunFile whole = read(log_text({.method = "snapkv", .has_full = false}));
  const std::vector<RunFile> runs{whole, read(shorter)};
  ASSERT_EQ(runs[1].n_contexts, 1);
  for (const RelativeRow& row : make_report(runs).relative) EXPECT_NE(row.method, "snapkv");
}

TEST_F(ReportTest, ModelsHaveAFigureTogether) {
  const Report two = report({{.model = "Tiny"}, {.model = "Small", .fingerprint = "ff"}});
  const auto names = file_names(two);
  EXPECT_NE(std::find(names.begin(), names.end(), "relative-models.svg"), names.end());
  const Report same_name = report({{}, {.fingerprint = "ffeeddccbbaa9988"}});
  EXPECT_EQ(same_name.tasks[0].model, "Tiny (012345)");
  EXPECT_EQ(same_name.tasks[1].model, "Tiny (ffeedd)");
}

TEST_F(ReportTest, FilesHoldTheFiguresOfTheTable) {
  const std::string hostile = "T<script>|\"x";
  const auto files = report_files(report({{.model = hostile, .score = 0.6}}));
  const auto content = [&](const std::string& name) {
    const auto found = std::find_if(files.begin(), files.end(),
                                    [&](const ReportFile& file) { return file.name == name; });
    return found == files.end() ? std::string() : found->content;
  };
  const std::string markdown = content("report.md");
  EXPECT_NE(markdown.find("| kvzip | 0.3 | 2 | 2 | 0.600 [0.600, 0.600] | 0.600 [0.600, 0.600] |"),
            std::string::npos)
      << markdown;
  EXPECT_NE(markdown.find("T<script>\\|"), std::string::npos);  // inside a table
  const std::string html = content("report.html");
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_NE(html.find("<svg"), std::string::npos);
  EXPECT_NE(html.find("<td>0.600 [0.600, 0.600]</td>"), std::string::npos);
  for (const ReportFile& file : files) {
    EXPECT_EQ(file.name.find_first_of("<>|\"/ "), std::string::npos) << file.name;
  }
}

}  // namespace
}  // namespace ctxzip::eval
