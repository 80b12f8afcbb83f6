// The public formats as they are.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ctxzip/error.h"
#include "eval/task_list.h"
#include "support/temp_path.h"

namespace ctxzip::eval {
namespace {

class DataFiles : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  TaskData load(const char* task, const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return find_task(task)->load({.path = path_, .count_tokens = [](std::string_view t) {
                                    return static_cast<int64_t>(t.size());
                                  }});
  }
  std::string error_of(const char* task, const std::string& text,
                       ErrorKind kind = ErrorKind::kCorruptFile) {
    try {
      load(task, text);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(path_), std::string::npos) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error for " << text;
    return {};
  }

  std::string path_ = test::temp_path("data_files_") +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
};

TEST_F(DataFiles, Gsm8kSplitsBeforeTheLastSentence) {
  const std::string story =
      "Ada has 12 apples and buys 3.5 kg more of them at the market. She gives a third of all of "
      "them to Bo. ";
  const TaskData data = load("gsm8k", R"({"question": ")" + story +
                                          R"(How many are left?  ", "answer": "12\n#### 1,008"}

{"question": "A short one. Why?", "answer": "#### 1"}
)");
  ASSERT_EQ(data.contexts.size(), 1u);
  const EvalContext& context = data.contexts[0];
  EXPECT_EQ(context.text, story.substr(0, story.size() - 1));
  EXPECT_EQ(context.questions[0].text, "How many are left?");
  EXPECT_EQ(context.questions[0].answers, std::vector<std::string>{"1,008"});
  EXPECT_EQ(gsm8k_task().metrics[0].score("So 1008 remain.", context.questions[0]), 1);
}

TEST_F(DataFiles, Gsm8kErrors) {
  EXPECT_NE(error_of("gsm8k", "").find("is empty"), std::string::npos);
  EXPECT_NE(error_of("gsm8k", "{\"question\": \"A. B?\"}").find("line 1 has no \"answer\""),
            std::string::npos);
  EXPECT_NE(
      error_of("gsm8k", "\n{\"question\": \"A. B?\", \"answer\": \"5\"}").find("line 2.answer"),
      std::string::npos);
  EXPECT_NE(error_of("gsm8k", "{\"question\": \"A. B?\", \"answer\": \"#### 5\"}").find("no story"),
            std::string::npos);
  EXPECT_NE(error_of("gsm8k", "{\"data\": []}\nnonsense").find("no \"question\""),
            std::string::npos);
  EXPECT_NE(error_of("gsm8k", "nonsense").find("line 1 is not JSON"), std::string::npos);
}

TEST_F(DataFiles,
       EmptyContextsStayEmpty) {  // for the run to refuse, whatever a task puts before them
  for (const char* task : {"en-qa", "retr-kv", "repoqa", "en-sum", "retr-multihop", "math-find"}) {
    const TaskData data = load(task, R"({"context": " \n", "multi_turns": [)"
                                     R"({"input": "Who?", "answer": "Ann"}]})");
    ASSERT_EQ(data.contexts.size(), 1u) << task;
    EXPECT_TRUE(is_blank(data.contexts[0].text)) << task << ": " << data.contexts[0].text;
  }
}

TEST_F(DataFiles, ScbenchTurnsBecomeQuestions) {
  const TaskData data =
      load("retr-kv", R"({"id": 0, "context": "{\"a\": \"b\"}", "multi_turns": [)"
                      R"({"input": "Key a", "answer": "b"}, {"input": "Key c", "answer": ""}]})");
  ASSERT_EQ(data.contexts.size(), 1u);
  EXPECT_TRUE(data.contexts[0].text.ends_with(R"({"a": "b"})"));
  ASSERT_EQ(data.contexts[0].questions.size(), 1u);
  EXPECT_EQ(data.contexts[0].questions[0].text, "Key a");
  EXPECT_EQ(data.n_skipped, 1);
}

TEST_F(DataFiles, ScbenchMultiHopWantsAllNames) {
  const TaskData data = load(
      "retr-multihop",
      R"({"input": "VAR A = 1", "multi_turns": [{"input": "Which are 1?", "answer": ["A", "B"]}]})");
  ASSERT_EQ(data.contexts.size(), 1u);
  EXPECT_EQ(data.contexts[0].text, "VAR A = 1");
  EXPECT_EQ(data.contexts[0].questions[0].answers, (std::vector<std::string>{"A", "B"}));
  EXPECT_EQ(retr_multihop_task().metrics[0].score("a", data.contexts[0].questions[0]), 0.5);
}

TEST_F(DataFiles, ScbenchMathFindAsksAWholeQuestion) {
  const TaskData data = load(
      "math-find",
      R"({"context": "1 2 3", "multi_turns": [{"input": "The largest number is", "answer": 3}]})");
  const EvalQuestion& question = data.contexts.at(0).questions.at(0);
  EXPECT_EQ(question.text, "What is the largest number?");
  EXPECT_EQ(question.answers, std::vector<std::string>{"3"});
}

TEST_F(DataFiles, ScbenchChoicesAreLettersOrTexts) {
  const TaskData data = load(
      "en-multichoice", R"({"context": "A book.", "multi_turns": [)"
                        R"({"input": "Who?", "options": ["Ann", "Bob"], "answer": "B"},)"
                        R"({"input": "Who?", "options": ["Ann", "Bob"], "answer": ["Ann"]}]})");
  const auto& questions = data.contexts.at(0).questions;
  EXPECT_EQ(questions[0].text, "Who?\nA. Ann\nB. Bob");
  EXPECT_EQ(questions[0].answers, (std::vector<std::string>{"B", "Bob"}));
  EXPECT_EQ(questions[1].answers, (std::vector<std::string>{"A", "Ann"}));
  EXPECT_NE(
      error_of(
          "en-multichoice",
          R"({"context": "x", "multi_turns": [{"input": "Who?", "options": ["Ann"], "answer": "C"}]})")
          .find("line 1.multi_turns[0].answer"),
      std::string::npos);
  const TaskData shots =
      load("icl-manyshot",
           R"({"context": "x", "multi_turns": [)"
           R"json({"input": "Which?\nOptions:\n(A) red\n(B) blue\n", "answer": "(B)"}]})json");
  EXPECT_EQ(shots.contexts[0].questions[0].answers, (std::vector<std::string>{"B", "blue"}));
}

TEST_F(DataFiles, ScbenchRepositoriesShareTheirFunctions) {
  const std::string row = R"({"repo": "r", "lang": "python", "context": "code", "multi_turns": [)";
  const TaskData data =
      load("repoqa", row + R"({"input": "First?", "answer": "def f ( ) :", "name": "f"}]})" + "\n" +
                         row + R"({"input": "Second?", "answer": "def g ( ) :", "name": "g"}]})");
  ASSERT_EQ(data.contexts.size(), 2u);
  EXPECT_EQ(data.contexts[0].questions[0].others, std::vector<std::string>{"def g ( ) :"});
  EXPECT_EQ(data.contexts[1].group, "r");
}

TEST_F(DataFiles, ScbenchMixturesNameTheirParts) {
  const TaskData data =
      load("mix-sum-niah", R"({"context": "x", "multi_turns": [)"
                           R"({"input": "Sum", "answer": "s", "task": "scbench_summary"},)"
                           R"({"input": "Key", "answer": "7", "task": "scbench_passkey"}]})");
  const auto& questions = data.contexts.at(0).questions;
  EXPECT_EQ(questions[0].part, "summary");
  EXPECT_EQ(questions[1].part, "needle");
  EXPECT_NE(error_of("mix-sum-niah",
                     R"({"context": "x", "multi_turns": [{"input": "Sum", "answer": "s"}]})")
                .find("has no \"task\""),
            std::string::npos);
}

TEST_F(DataFiles, ScbenchErrors) {
  EXPECT_NE(error_of("en-qa", R"({"multi_turns": []})").find("line 1 has no \"input\""),
            std::string::npos);
  EXPECT_NE(error_of("en-qa", R"({"context": "x"})").find("line 1 has no \"multi_turns\""),
            std::string::npos);
  EXPECT_NE(error_of("en-qa", R"({"context": "x", "multi_turns": []})").find("no question"),
            std::string::npos);
  EXPECT_NE(error_of("en-qa", "[1]").find("line 1 is array, expected an object"),
            std::string::npos);
}

TEST_F(DataFiles, RulerPromptsAreSplitBeforeTheirQuestion) {
  const TaskData data = load(
      "ruler-vt",
      R"({"index": 0, "input": "Memorize.\nQuestion: no.\nVAR A = 1\nQuestion: Find all.", "outputs": ["A"], "length": 9}
{"input": "Some numbers.\nWhat are all the numbers for x?", "outputs": ["12", "13"]}
{"context": "c", "question": "q", "answer": ["a"], "answer_prefix": "It is", "task": "vt"})");
  ASSERT_EQ(data.contexts.size(), 3u);
  EXPECT_EQ(data.contexts[0].text, "Memorize.\nQuestion: no.\nVAR A = 1\n");
  EXPECT_EQ(data.contexts[0].questions[0].text, "Question: Find all.");
  EXPECT_EQ(data.contexts[1].questions[0].text, "What are all the numbers for x?");
  EXPECT_EQ(data.contexts[1].questions[0].answers.size(), 2u);
  EXPECT_EQ(data.contexts[2].text, "c");
  EXPECT_NE(error_of("ruler-vt", R"({"input": "no question", "outputs": ["A"]})")
                .find("line 1.input has no line that starts with"),
            std::string::npos);
}

TEST_F(DataFiles, DataFilesTakeNoLengths) {
  std::ofstream(path_) << R"({"context": "x", "multi_turns": [{"input": "q", "answer": "a"}]})";
  try {
    retr_kv_task().load({.path = path_, .lengths = {100}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
  }
}

TEST_F(DataFiles, RulerQaHidesTheParagraphAmongOthers) {
  const std::string squad = test::temp_path("ruler_qa_test.json");
  std::ofstream(squad) << R"({"data": [{"paragraphs": [
    {"context": "Alpha is first.", "qas": [{"id": "1", "question": "Which?", "answers": [{"text": "Alpha"}]}]},
    {"context": "Beta is second.", "qas": [{"id": "2", "question": "Who?", "answers": [{"text": "Beta"}]}]},
    {"context": "Gamma is third.", "qas": [{"id": "3", "question": "What?", "answers": [{"text": "Gamma"}]}]}]}]})";
  const TaskData data = find_task("ruler-qa")
                            ->load({.path = squad,
                                    .lengths = {70},
                                    .n_contexts = 3,
                                    .count_tokens = [](std::string_view text) {
                                      return static_cast<int64_t>(text.size());
                                    }});
  std::filesystem::remove(squad);
  ASSERT_EQ(data.contexts.size(), 3u);
  for (const EvalContext& context : data.contexts) {
    EXPECT_NE(context.text.find(context.questions[0].answers[0] + " is"), std::string::npos);
    EXPECT_NE(context.text.find("Document 2:\n"), std::string::npos);
    EXPECT_EQ(context.text.find("Document 3:\n"), std::string::npos);
  }
}

}  // namespace
}  // namespace ctxzip::eval
