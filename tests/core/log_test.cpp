#include "core/log.h"

#include <ggml.h>
#include <gguf.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/fail.h"

namespace ctxzip {
namespace {

class LogTest : public testing::Test {
 protected:
  LogTest() {
    set_log_sink([this](LogLevel level, std::string_view message) {
      levels_.push_back(level);
      messages_.emplace_back(message);
    });
  }
  ~LogTest() override { set_log_sink({}); }

  std::vector<LogLevel> levels_;
  std::vector<std::string> messages_;
};

TEST_F(LogTest, ReachesTheSink) {
  log_info("{} of {}", 1, 2);
  EXPECT_EQ(messages_, std::vector<std::string>{"1 of 2"});
  EXPECT_EQ(levels_, std::vector<LogLevel>{LogLevel::kInfo});
}

TEST_F(LogTest, SilentWithoutASink) {
  set_log_sink({});
  log_info("dropped");
  EXPECT_TRUE(messages_.empty());
}

TEST_F(LogTest, BackendMessagesReachTheSinkLineByLine) {
  capture_backend_logs();
  capture_backend_logs();
  const char no_gguf[] = "not a gguf file, but long enough to look at";
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  gguf_free(gguf_init_from_buffer(no_gguf, sizeof(no_gguf), {.no_alloc = true, .ctx = nullptr}));
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  ASSERT_FALSE(messages_.empty());
  EXPECT_EQ(levels_[0], LogLevel::kError);
  for (const std::string& message : messages_) EXPECT_EQ(message.find('\n'), std::string::npos);
}

TEST_F(LogTest, SinkMayLogAndReplaceItself) {
  std::vector<std::string> outer;
  std::vector<std::string> inner;
  set_log_sink([&](LogLevel, std::string_view message) {
    outer.emplace_back(message);
    set_log_sink([&](LogLevel, std::string_view later) { inner.emplace_back(later); });
    log_info("from the sink");
  });
  log_info("from outside");
  EXPECT_EQ(outer, std::vector<std::string>{"from outside"});
  EXPECT_EQ(inner, std::vector<std::string>{"from the sink"});
}

TEST_F(LogTest, SeveralThreads) {
  std::vector<std::thread> threads;
  for (int n = 0; n < 4; ++n) {
    threads.emplace_back([] {
      for (int message = 0; message < 100; ++message) log_info("{}", message);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(messages_.size(), 400u);
}

TEST(Fail, CarriesKindAndMessage) {
  try {
    fail(ErrorKind::kMismatch, "{} is {}", "a", 1);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_STREQ(error.what(), "a is 1");
  }
}

TEST(FailDeathTest, CheckNamesThePlace) {
  EXPECT_DEATH(CHECK(1 == 2), "log_test.cpp:[0-9]+: 1 == 2 is false");
}

TEST(Progress, NamesEveryStage) {
  EXPECT_EQ(stage_name(Stage::kLoad), "load");
  EXPECT_EQ(stage_name(Stage::kWrite), "write");
}

}  // namespace
}  // namespace ctxzip
