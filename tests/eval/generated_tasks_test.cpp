// Every generator, with words instead of tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "ctxzip/error.h"
#include "eval/generator.h"
#include "eval/metrics.h"
#include "eval/task_list.h"
#include "eval/variable_chains.h"
#include "support/temp_path.h"

namespace ctxzip::eval {
namespace {

int64_t count_words(std::string_view text) {
  std::istringstream words{std::string(text)};
  int64_t n = 0;
  for (std::string word; words >> word;) ++n;
  return n;
}

DataRequest request(int64_t length, int64_t n, uint64_t seed = 0) {
  return {.lengths = {length}, .n_contexts = n, .seed = seed, .count_tokens = count_words};
}

// A folder with described functions, for the tasks about code.
class SourceFolder {
 public:
  SourceFolder() {
    std::filesystem::create_directories(path_);
    for (int file = 0; file < 4; ++file) {
      std::ofstream out(path_ / ("file" + std::to_string(file) + ".cpp"));
      for (int function = 0; function < 6; ++function) {
        const std::string name = "f" + std::to_string(file) + std::to_string(function);
        out << "// Computes the value number " << name << " of a long series of values.\nint "
            << name << "(int x) {\n  x += " << function << " ;\n  return x * " << file
            << " ;\n}\n\n";
      }
    }
  }
  ~SourceFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ =
      (test::temp_path("code_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

std::vector<const Task*> generators() {
  std::vector<const Task*> found;
  for (const Task& task : tasks()) {
    const bool needs_squad = std::string_view(task.name) == "ruler-qa";
    if (!task.lengths.empty() && !needs_squad) found.push_back(&task);
  }
  return found;
}

DataRequest request_for(const Task& task, const SourceFolder& folder, int64_t length, int64_t n,
                        uint64_t seed = 0) {
  DataRequest with = request(length, n, seed);
  if (task.need == DataNeed::kFileOrFolder) with.path = folder.path();
  return with;
}

TEST(GeneratedTasks, AreAsLongAsAskedAndHoldTheirAnswers) {
  const SourceFolder folder;
  for (const Task* task : generators()) {
    SCOPED_TRACE(task->name);
    const TaskData data = task->load(request_for(*task, folder, 400, 3));
    ASSERT_EQ(data.contexts.size(), 3u);
    for (const EvalContext& context : data.contexts) {
      EXPECT_LE(count_words(context.text), 400);
      EXPECT_GE(count_words(context.text), 200);
      EXPECT_EQ(context.group, "400");
      std::set<std::string> ids;
      for (const EvalQuestion& question : context.questions) {
        EXPECT_TRUE(ids.insert(question.id).second) << question.id;
        EXPECT_FALSE(question.answers.empty());
        const bool summary = std::string_view(task->name) == "en-sum" || question.part == "summary";
        // A right letter stands with its option.
        const bool letter = std::string_view(task->name) == "icl-manyshot";
        for (size_t at = letter ? 1 : 0; at < question.answers.size() && !summary; ++at) {
          EXPECT_NE(context.text.find(question.answers[at]), std::string::npos)
              << question.answers[at];
        }
      }
    }
  }
}

TEST(GeneratedTasks, GiveTheRightAnswerTheFullScore) {
  const SourceFolder folder;
  for (const Task* task : generators()) {
    SCOPED_TRACE(task->name);
    const TaskData data = task->load(request_for(*task, folder, 300, 2));
    for (const EvalContext& context : data.contexts) {
      for (const EvalQuestion& question : context.questions) {
        std::string all;
        for (const std::string& answer : question.answers) all += answer + " ";
        const std::string& best =
            task->metrics[0].name == std::string_view("contains_all") ? all : question.answers[0];
        EXPECT_DOUBLE_EQ(task->metrics[0].score(best, question), 1) << best;
        EXPECT_LT(task->metrics[0].score("I do not know.", question), 0.1);
        EXPECT_DOUBLE_EQ(task->metrics[0].score("", question), 0);
      }
    }
  }
}

TEST(GeneratedTasks, DependOnTheSeedOnly) {
  const SourceFolder folder;
  const auto text = [&](const Task& task, uint64_t seed, int64_t n) {
    const TaskData data = task.load(request_for(task, folder, 300, n, seed));
    std::string all;
    for (const EvalQuestion& question : data.contexts[0].questions) {
      all += question.text + question.answers[0];
    }
    return all + data.contexts[0].text;
  };
  for (const Task* task : generators()) {
    SCOPED_TRACE(task->name);
    EXPECT_EQ(text(*task, 1, 2), text(*task, 1, 2));
    EXPECT_NE(text(*task, 1, 2), text(*task, 2, 2));
  }
}

TEST(GeneratedTasks, RefuseALengthWithoutRoom) {
  const SourceFolder folder;
  for (const Task* task : generators()) {
    SCOPED_TRACE(task->name);
    try {
      task->load(request_for(*task, folder, 2, 1));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("too short"), std::string::npos) << error.what();
    }
  }
}

TEST(Niah, NeedlesStandAtTheDepthsOfTheirNames) {
  const TaskData data = niah_task().load(request(1000, 11));
  std::vector<std::string> ids;
  for (const EvalContext& context : data.contexts) {
    const EvalQuestion& question = context.questions.at(0);
    ids.push_back(question.id);
    const double depth = std::stod(question.id.substr(5)) / 100;
    const size_t at = context.text.find(question.answers.at(0));
    EXPECT_NEAR(static_cast<double>(at) / static_cast<double>(context.text.size()), depth, 0.05);
  }
  EXPECT_EQ(ids.front(), "depth0");
  EXPECT_EQ(ids[3], "depth30");
  EXPECT_EQ(ids.back(), "depth100");
  // Fewer contexts are spread.
  const TaskData three = niah_task().load(request(1000, 3));
  EXPECT_EQ(three.contexts[1].questions[0].id, "depth50");
  EXPECT_EQ(three.contexts[2].questions[0].id, "depth100");
}

TEST(Niah, LengthsShareTheContexts) {
  DataRequest with = request(100, 5);
  with.lengths = {100, 200};
  const TaskData data = niah_task().load(with);
  ASSERT_EQ(data.contexts.size(), 6u);
  EXPECT_EQ(data.contexts[0].id, "100.0");
  EXPECT_EQ(data.contexts[5].id, "200.2");
}

TEST(MathFind, AnswersAreTheExtremes) {
  for (const EvalContext& context : math_find_task().load(request(400, 3)).contexts) {
    std::vector<int64_t> numbers;
    std::istringstream words(context.text.substr(context.text.find("\n\n")));
    for (std::string word; words >> word;) numbers.push_back(std::stol(word));
    std::sort(numbers.begin(), numbers.end());
    for (const EvalQuestion& question : context.questions) {
      const int64_t answer = std::stol(question.answers[0]);
      EXPECT_EQ(std::count(numbers.begin(), numbers.end(), answer), 1) << question.id;
      if (question.id == "largest") {
        EXPECT_EQ(answer, numbers.back());
      }
      if (question.id == "third largest") {
        EXPECT_EQ(answer, numbers[numbers.size() - 3]);
      }
      if (question.id == "second smallest") {
        EXPECT_EQ(answer, numbers[1]);
      }
    }
  }
}

TEST(FrequentWords, AnswersAreTheMostFrequent) {
  for (const char* name : {"ruler-fwe", "ruler-cwe"}) {
    const TaskData data = find_task(name)->load(request(900, 2));
    for (const EvalContext& context : data.contexts) {
      std::map<std::string, int> counts;
      std::istringstream words(context.text.substr(context.text.find("\n\n")));
      for (std::string word; words >> word;) ++counts[word];
      const std::vector<std::string>& answers = context.questions[0].answers;
      int fewest = 1000;
      for (const std::string& answer : answers) fewest = std::min(fewest, counts[answer]);
      for (const auto& [word, count] : counts) {
        const bool asked = std::find(answers.begin(), answers.end(), word) != answers.end();
        EXPECT_TRUE(asked || count < fewest) << word;
      }
    }
  }
}

TEST(Chains, LeadFromEveryVariableToTheValue) {
  Draw draw(3);
  const auto chains = draw_chains(2, 3, draw);
  std::set<std::string> names;
  for (const VariableChain& chain : chains) {
    EXPECT_EQ(chain.names.size(), 4u);
    names.insert(chain.names.begin(), chain.names.end());
  }
  EXPECT_EQ(names.size(), 8u);
  std::vector<Placed> placed = place_chains(chains, draw);
  ASSERT_EQ(placed.size(), 8u);
  EXPECT_EQ(placed[0].sentence, "VAR " + chains[0].names[0] + " = " + chains[0].value + ".");
  EXPECT_EQ(placed[1].sentence, "VAR " + chains[0].names[1] + " = VAR " + chains[0].names[0] + ".");
  EXPECT_LE(placed[0].depth, placed[1].depth);
}

TEST(RulerNeedles, HaveTheNumberOfValuesTheirNameSays) {
  const auto answers = [](const char* name) {
    return find_task(name)->load(request(300, 1)).contexts[0].questions[0].answers.size();
  };
  EXPECT_EQ(answers("ruler-niah-single-2"), 1u);
  EXPECT_EQ(answers("ruler-niah-multikey-1"), 1u);
  EXPECT_EQ(answers("ruler-niah-multivalue"), 4u);
  EXPECT_EQ(answers("ruler-niah-multiquery"), 4u);
}

TEST(CodeTasks, TakeDescriptionsOutOfTheContext) {
  const SourceFolder folder;
  DataRequest with = request(300, 2);
  with.path = folder.path();
  for (const EvalContext& context : repoqa_task().load(with).contexts) {
    EXPECT_EQ(context.text.find("Computes the value"), std::string::npos);
    ASSERT_EQ(context.questions.size(), 5u);
    for (const EvalQuestion& question : context.questions) {
      EXPECT_NE(question.text.find("Computes the value number this function of"),
                std::string::npos);
      EXPECT_GE(question.others.size(), 5u);
      EXPECT_EQ(question.part, "");
    }
  }
  const EvalContext mixed = mix_repoqa_kv_task().load(with).contexts[0];
  EXPECT_EQ(mixed.questions.size(), 6u);
  EXPECT_EQ(mixed.questions[0].part, "code");
  EXPECT_EQ(mixed.questions[5].part, "kv");
}

TEST(Filler, TakesTheSentencesOfAFile) {
  const std::string path = test::temp_path("filler_test.txt");
  std::ofstream(path) << "One is here. Two is\nthere!\n\nA heading\n\nThree? ";
  const Filler filler(path);
  std::vector<std::string> all = filler.sentences(4, Draw(0));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all,
            (std::vector<std::string>{"A heading", "One is here.", "Three?", "Two is there!"}));
  EXPECT_EQ(filler.sentences(9, Draw(0))[4], filler.sentences(1, Draw(0))[0]);
  std::ofstream(path) << " \n";
  EXPECT_THROW(Filler{path}, Error);
  std::filesystem::remove(path);
  EXPECT_THROW(Filler{path}, Error);
}

TEST(LongestText, FindsTheLargestNumberOfItems) {
  int64_t n_counted = 0;
  const auto build = [](size_t n) { return std::string(n, 'x'); };
  const CountTokens length = [&](std::string_view text) {
    ++n_counted;
    return static_cast<int64_t>(text.size());
  };
  for (const int64_t limit : {1, 2, 3, 100, 1000}) {
    EXPECT_EQ(longest_text(limit, 1, length, build).n_items, static_cast<size_t>(limit));
  }
  EXPECT_EQ(longest_text(1000, 1, length, build, 7).n_items, 7u);
  EXPECT_EQ(longest_text(1000, 0, length, build, 0).n_items, 0u);
  n_counted = 0;
  longest_text(1'000'000, 1, length, build);
  EXPECT_LT(n_counted, 50);
}

}  // namespace
}  // namespace ctxzip::eval
