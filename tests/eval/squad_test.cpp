#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ctxzip/error.h"
#include "eval/task_list.h"

namespace ctxzip::eval {
namespace {

class SquadTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::path(testing::TempDir()) /
             (std::string("squad_") +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".json"))
                .string();
  }
  void TearDown() override { std::filesystem::remove(path_); }

  TaskData load(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return squad_task().load({.path = path_});
  }
  std::string error_of(const std::string& text) {
    try {
      load(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error for " << text;
    return {};
  }

  std::string path_;
};

TEST_F(SquadTest, ReadsBothVersions) {
  const TaskData data = load(R"({"version": "v2.0", "data": [
    {"title": "Rivers", "paragraphs": [
      {"context": "The Elbe is long.", "qas": [
        {"id": "q1", "question": "What is long?", "is_impossible": false,
         "answers": [{"text": "Elbe", "answer_start": 4}, {"text": "The Elbe"}, {"text": "Elbe"}]},
        {"id": "q2", "question": "What is short?", "is_impossible": true, "answers": []}]},
      {"context": "Nothing can be answered here.", "qas": [
        {"id": "q3", "question": "Why?", "answers": []}]}]},
    {"paragraphs": [{"context": "Untitled.", "qas": [
        {"id": "q4", "question": "What?", "answers": [{"text": "Untitled"}]}]}]}]})");
  ASSERT_EQ(data.contexts.size(), 2u);
  EXPECT_EQ(data.n_skipped, 2);
  const EvalContext& first = data.contexts[0];
  EXPECT_EQ(first.id, "0.0");
  EXPECT_EQ(first.group, "Rivers");
  EXPECT_EQ(first.text, "The Elbe is long.");
  ASSERT_EQ(first.questions.size(), 1u);
  EXPECT_EQ(first.questions[0].id, "q1");
  EXPECT_EQ(first.questions[0].answers, (std::vector<std::string>{"Elbe", "The Elbe"}));
  EXPECT_EQ(data.contexts[1].id, "1.0");
  EXPECT_EQ(data.contexts[1].group, "1");
}

TEST_F(SquadTest, ErrorsNameThePlace) {
  EXPECT_NE(error_of("{").find("not JSON"), std::string::npos);
  EXPECT_NE(error_of("").find("not JSON"), std::string::npos);
  EXPECT_NE(error_of("[]").find("the top level is array"), std::string::npos);
  EXPECT_NE(error_of(R"({"datum": 1})").find("the top level has no \"data\""), std::string::npos);
  EXPECT_NE(error_of(R"({"data": {}})").find("data is object, expected an array"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"data": [7]})").find("data[0] is number"), std::string::npos);
  EXPECT_NE(error_of(R"({"data": [{"paragraphs": [{"context": 3, "qas": []}]}]})")
                .find("data[0].paragraphs[0].context is number, expected a string"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"data": []})").find("no question"), std::string::npos);
}

TEST_F(SquadTest, AMissingFileIsNotFound) {
  try {
    squad_task().load({.path = path_});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
  }
}

std::vector<std::string> ids_in_turn() {
  std::vector<EvalContext> contexts;
  for (const char* id : {"a0", "a1", "a2", "b0", "c0", "c1"}) {
    contexts.push_back({.id = id, .group = std::string(1, id[0]), .text = "", .questions = {}});
  }
  std::vector<std::string> ids;
  for (const EvalContext& context : in_turn(contexts)) ids.push_back(context.id);
  return ids;
}

TEST(InTurn, TakesOneOfEachGroup) {
  EXPECT_EQ(ids_in_turn(), (std::vector<std::string>{"a0", "b0", "c0", "a1", "c1", "a2"}));
}

TEST(Tasks, NamesAndMetricsAreUsable) {
  EXPECT_EQ(find_task("nosuch"), nullptr);
  for (const Task& task : tasks()) {
    EXPECT_EQ(find_task(task.name), &task);
    EXPECT_EQ(task.data_format == nullptr, task.need == DataNeed::kGenerated) << task.name;
    EXPECT_TRUE(!task.takes_filler || !task.lengths.empty()) << task.name;
    EXPECT_FALSE(task.metrics.empty());
  }
  EXPECT_EQ(question_prompt(squad_task(), {.id = "", .text = "Why?", .answers = {}}),
            "Why? Answer briefly with a phrase from the text.");
}

}  // namespace
}  // namespace ctxzip::eval
