#include "eval/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "ctxzip/error.h"
#include "eval/summary.h"
#include "support/engine_run.h"
#include "support/temp_path.h"

namespace ctxzip::eval {
namespace {

constexpr const char* kData = R"({"version": "1.1", "data": [
  {"title": "Lighthouse", "paragraphs": [{
    "context": "The lighthouse of Marrow Point was built in 1874 by Agnes Thorne. Its lamp burns whale oil and can be seen from nineteen miles away. The keeper, Jonas Pell, climbs 212 steps every evening. In winter the island is cut off for eleven weeks, and the supplies come from the village of Dunmore.",
    "qas": [
      {"id": "l1", "question": "Who built the lighthouse?", "answers": [{"text": "Agnes Thorne"}]},
      {"id": "l2", "question": "How many steps does the keeper climb?", "answers": [{"text": "212"}]}]}]},
  {"title": "Bakery", "paragraphs": [{
    "context": "The bakery in Quill Street opens at five in the morning. Its owner, Mirela Stoica, learned to bake in Brasov and sells forty kinds of bread. The most popular one is a rye loaf with caraway, of which ninety are sold every day.",
    "qas": [
      {"id": "b1", "question": "Who owns the bakery?", "answers": [{"text": "Mirela Stoica"}]}]}]}]})";

RunOptions options() {
  return {.methods = {find_method("full"), find_method("kvzip"), find_method("random")},
          .ratios = {0.3, 1},
          .max_tokens = 8};
}

TEST(Variants, MethodsTimesRatiosAndFullOnce) {
  const auto all = variants(options());
  ASSERT_EQ(all.size(), 5u);
  EXPECT_EQ(all[0].method->name, "full");
  EXPECT_EQ(all[0].ratio, 1);
  EXPECT_EQ(all[2].method->name, "kvzip");
  EXPECT_EQ(all[2].ratio, 1);
  EXPECT_EQ(all[3].method->name, "random");
  EXPECT_EQ(all[3].ratio, 0.3);
  EXPECT_EQ(find_method("nosuch"), nullptr);
}

// One model and data file for all tests; they run in one process.
class RunnerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!test::model_present(test::kSmolLm2)) return;
    model_ = std::make_unique<Model>(Model::load(test::model_path(test::kSmolLm2)));
  }
  static void TearDownTestSuite() { model_.reset(); }
  void SetUp() override {
    CTXZIP_NEEDS_MODEL(test::kSmolLm2);
    data_ = test::temp_path("runner_test.json");
    log_ = test::temp_path("runner_test.jsonl");
    std::ofstream(data_) << kData;
    std::filesystem::remove(log_);
  }
  void TearDown() override {
    std::filesystem::remove(data_);
    std::filesystem::remove(log_);
  }

  EvalRun prepare(const RunOptions& with) {
    return prepare_run(*model_, *find_task("squad"), data_, with);
  }
  // Runs into the log and returns the records.
  std::vector<AnswerRecord> execute(const RunOptions& with, const RunHooks& hooks = {}) {
    const EvalRun run = prepare(with);
    RunLog log(log_, run.header, run.plan, run.metric_names());
    execute_run(*model_, run, log, hooks);
    return log.records();
  }
  std::string log_text() const {
    std::ifstream in(log_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static inline std::unique_ptr<Model> model_;
  std::string data_;
  std::string log_;
};

// Records without what a clock put into them.
std::vector<std::string> lines(std::vector<AnswerRecord> records) {
  std::vector<std::string> all;
  for (AnswerRecord& record : records) {
    record.times = {};
    all.push_back(to_line(to_json(record, {"substring", "f1", "exact"})));
  }
  return all;
}

TEST_F(RunnerTest, EvictsAsManyPairsAsTheRatioSays) {
  std::vector<std::pair<int64_t, int64_t>> progress;
  const auto records =
      execute(options(),
              {.progress = [&](int64_t done, int64_t total) { progress.emplace_back(done, total); },
               .notice = {}});
  ASSERT_EQ(records.size(), 3u * 5);
  for (const AnswerRecord& record : records) {
    // 0.3 of a whole number of tens would not need rounding up.
    const auto ceiling = static_cast<int64_t>(
        std::ceil(record.key.ratio * static_cast<double>(record.pairs_total) - 1e-9));
    EXPECT_EQ(record.pairs_kept, ceiling) << record.key.method;
    EXPECT_EQ(record.kv_bytes == record.kv_bytes_full, record.key.ratio == 1);
    EXPECT_LE(record.output_tokens, 8);
    EXPECT_GT(record.times.prefill_s, 0);
    EXPECT_EQ(record.times.score_s > 0, record.key.method != "full");
  }
  EXPECT_EQ(progress.front(), (std::pair<int64_t, int64_t>{0, 15}));
  EXPECT_EQ(progress.back(), (std::pair<int64_t, int64_t>{15, 15}));
  // Keeping everything is the same whoever decides.
  EXPECT_EQ(records[0].output, records[4].output);
  EXPECT_EQ(records[0].output, records[8].output);
}

TEST_F(RunnerTest, QueryAwareSettings) {
  RunOptions with = options();
  with.methods = {find_method("full"), find_method("snapkv"), find_method("snapkv-prefill"),
                  find_method("snapkv-reuse"), find_method("h2o-prefill")};
  with.ratios = {0.4};
  const auto records = execute(with);
  ASSERT_EQ(records.size(), 3u * 5);
  const auto output = [&](const std::string& method, const std::string& question) {
    for (const AnswerRecord& record : records) {
      if (record.key.method != method || record.key.question != question) continue;
      if (method != "full") {
        EXPECT_EQ(record.pairs_kept, (record.pairs_total * 4 + 9) / 10) << method;
        EXPECT_GT(record.times.score_s, 0);
      }
      return record.output;
    }
    ADD_FAILURE() << method << " was not asked " << question;
    return std::string();
  };
  // The first question of a context is compressed for in both settings.
  for (const char* question : {"l1", "b1"}) {
    EXPECT_EQ(output("snapkv-prefill", question), output("snapkv-reuse", question));
  }
  output("h2o-prefill", "l2");
}

// Rows of another type change answers at most, never what is kept; `full` is what it was.
TEST_F(RunnerTest, RowTypesAreThoseOfZippedContextsOnly) {
  RunOptions with = options();
  with.methods = {find_method("full"), find_method("kvzip")};
  with.ratios = {0.3};
  const auto plain = execute(with);
  std::filesystem::remove(log_);
  with.kv = KvType::kQ4;
  const auto packed = execute(with);
  ASSERT_EQ(packed.size(), plain.size());
  for (size_t at = 0; at < plain.size(); ++at) {
    EXPECT_EQ(packed[at].pairs_kept, plain[at].pairs_kept);
    if (plain[at].key.method == "full") {
      EXPECT_EQ(packed[at].kv_bytes, plain[at].kv_bytes);
      EXPECT_EQ(packed[at].output, plain[at].output);
    } else {
      // Scales weigh more in contexts as short as these.
      EXPECT_LT(packed[at].kv_bytes * 5, plain[at].kv_bytes * 2);
    }
  }
}

TEST_F(RunnerTest, HeadScoresAreAskedFor) {
  RunOptions with = options();
  with.methods = {find_method("heads-drop")};
  EXPECT_THROW(prepare(with), Error);
}

TEST_F(RunnerTest, GoesOnAfterAnInterruptionWithTheSameResult) {
  const auto whole = lines(execute(options()));
  std::filesystem::remove(log_);
  CancelToken cancel;
  const auto stop_in_second_context = [&](int64_t done, int64_t) {
    if (done == 11) cancel.cancel();
  };
  try {
    execute(options(), {.progress = stop_in_second_context, .notice = {}, .cancel = &cancel});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCancelled);
  }
  const std::string left = log_text();
  EXPECT_EQ(std::count(left.begin(), left.end(), '\n'), 1 + 10);
  int64_t to_do = 0;
  EXPECT_EQ(lines(execute(options(), {.progress = [&](int64_t, int64_t total) { to_do = total; },
                                      .notice = {}})),
            whole);
  EXPECT_EQ(to_do, 5);
}

TEST_F(RunnerTest, ThePlainPromptDiffersAndIsPartOfTheHeader) {
  RunOptions plain = options();
  plain.methods.resize(1);
  const auto templated = execute(plain);
  plain.chat_template = false;
  EXPECT_THROW(execute(plain), Error);
  std::filesystem::remove(log_);
  const auto records = execute(plain);
  EXPECT_LT(records[0].kv_bytes, templated[0].kv_bytes);  // no head of a template
  EXPECT_EQ(records[0].pairs_total, templated[0].pairs_total);
}

TEST_F(RunnerTest, RefusesOptionsThatCannotWork) {
  const auto refused = [&](auto change) {
    RunOptions with = options();
    change(with);
    try {
      prepare(with);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::kInvalidArgument;
    }
    return false;
  };
  EXPECT_TRUE(refused([](RunOptions& o) { o.methods.clear(); }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.methods.push_back(o.methods[0]); }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.ratios.clear(); }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.ratios = {0.5, 0.5}; }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.ratios = {0}; }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.ratios = {1.5}; }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.max_tokens = 0; }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.lengths = {0}; }));
  EXPECT_TRUE(refused([](RunOptions& o) { o.lengths = {500, 500}; }));
  const auto streamed = [&](const char* method) {
    return refused([&](RunOptions& o) {
      o.schedule = Schedule::kStreaming;
      o.methods = {find_method("full"), find_method(method)};
    });
  };
  EXPECT_FALSE(streamed("kvzip"));
  EXPECT_TRUE(refused([](RunOptions& o) {
    o.schedule = Schedule::kStreaming;
    o.recon_attention = ReconAttention::kFull;
  }));
  EXPECT_FALSE(streamed("random"));
  // Scores that only a whole text has, and settings that score it for a question.
  for (const char* method : {"kvzip-first", "h2o", "snapkv", "expected-attention", "h2o-prefill",
                             "snapkv-prefill", "snapkv-reuse"}) {
    EXPECT_TRUE(streamed(method)) << method;
  }
}

TEST_F(RunnerTest, EveryContextIsLookedAtBeforeTheFirstAnswer) {
  const auto error_of = [&](const std::string& context, const std::string& question) {
    std::ofstream(data_) << R"({"data": [{"paragraphs": [{"context": "A short one about a cat.",
        "qas": [{"id": "a", "question": "What?", "answers": [{"text": "cat"}]}]}, {"context": ")"
                         << context << R"(", "qas": [{"id": "b", "question": ")" << question
                         << R"(", "answers": [{"text": "cat"}]}]}]}]})";
    try {
      prepare(options());
    } catch (const Error& error) {
      return std::pair(error.kind(), std::string(error.what()));
    }
    ADD_FAILURE() << "no error";
    return std::pair(ErrorKind::kIo, std::string());
  };
  std::string long_text;
  for (int n = 0; n < 9000; ++n) long_text += " word";
  const auto long_context = error_of(long_text, "Who?");
  EXPECT_EQ(long_context.first, ErrorKind::kTooLong);
  EXPECT_NE(long_context.second.find("context 0.1"), std::string::npos) << long_context.second;
  EXPECT_NE(long_context.second.find("--skip-long"), std::string::npos) << long_context.second;
  const auto long_question = error_of("Another one.", long_text);
  EXPECT_EQ(long_question.first, ErrorKind::kTooLong);
  EXPECT_NE(long_question.second.find("question b"), std::string::npos) << long_question.second;
  RunOptions skipping = options();
  skipping.skip_long = true;
  const EvalRun run = prepare(skipping);
  EXPECT_EQ(run.contexts.size(), 1u);
  EXPECT_EQ(run.n_long, 1);
  EXPECT_EQ(error_of("  ", "Who?").first, ErrorKind::kCorruptFile);
  EXPECT_EQ(error_of("Another one.", " ").first, ErrorKind::kCorruptFile);
}

TEST_F(RunnerTest, GeneratedContextsAreAsLongAsWantedAndPartOfTheHeader) {
  RunOptions with = options();
  with.n_contexts = 2;
  with.lengths = {300};
  const auto prepared = [&] { return prepare_run(*model_, *find_task("niah"), "", with); };
  const EvalRun run = prepared();
  ASSERT_EQ(run.contexts.size(), 2u);
  for (const EvalContext& context : run.contexts) {
    const auto n = model_->tokenize(context.text).size();
    EXPECT_LE(n, 300u);
    EXPECT_GT(n, 250u);
  }
  EXPECT_EQ(run.header["data"]["generator"], "niah");
  EXPECT_EQ(header_difference(run.header, prepared().header), "");
  with.seed = 1;
  EXPECT_NE(run.header["data"], prepared().header["data"]);
}

TEST_F(RunnerTest, TheHeaderHoldsNoPath) {
  const EvalRun run = prepare(options());
  EXPECT_EQ(run.header["data"]["file"], std::filesystem::path(data_).filename().string());
  EXPECT_EQ(to_line(run.header).find(testing::TempDir()), std::string::npos);
  EXPECT_EQ(run.header["n_questions"], 3);
}

}  // namespace
}  // namespace ctxzip::eval
