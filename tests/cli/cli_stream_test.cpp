// The built program under VestigeKV, on a random model that is made here.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "run_program.h"
#include "support/tiny_model.h"

namespace ctxzip::cli {
namespace {

using nlohmann::json;
using test::TinyModel;

class CliStream : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::make_unique<ScratchFolder>();
    write_model("kimi.gguf", "kimi-linear");
    std::mt19937 random(7);
    std::string text;
    for (int at = 0; at < 1200; ++at) text += static_cast<char>('a' + random() % 26);
    folder_->write("doc.txt", text);
    zipped_ = run({"zip", "doc.txt", "-m", "kimi.gguf", "-o", "doc.ctz", "--policy", "vestige",
                   "--block", "256", "--rho", "1/16", "--close-now", "--json"});
  }
  static void TearDownTestSuite() { folder_.reset(); }

  void SetUp() override { ASSERT_EQ(zipped_.exit_code, 0) << zipped_.err; }

  static void write_model(const char* name, const char* architecture) {
    test::write_tiny_model({.architecture = architecture,
                            .n_vocab = test::kByteVocab,
                            .n_expert = 0,
                            .kinds = "rgrg",
                            .spread = 2.5f,
                            .edit = test::add_byte_tokenizer},
                           (folder_->path() / name).string());
  }
  static ProgramResult run(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.end(), {"--threads", "1"});
    return run_program({.arguments = std::move(arguments),
                        .input = input,
                        .folder = folder_->path(),
                        .environment = {{"CTXZIP_CACHE", (folder_->path() / "cache").string()}}});
  }
  static ProgramResult ask(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"ask",       "doc.ctz", "Who?", "And when?", "-m",
                                          "kimi.gguf", "-n",      "12",   "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(std::move(arguments));
  }
  static json answers(const ProgramResult& result) {
    json texts = json::array();
    const json all = json::parse(result.out)["answers"];
    for (const json& answer : all) texts.push_back(answer["answer"]);
    return texts;
  }

  static std::unique_ptr<ScratchFolder> folder_;
  static ProgramResult zipped_;
};

std::unique_ptr<ScratchFolder> CliStream::folder_;
ProgramResult CliStream::zipped_;

TEST_F(CliStream, ZipAndInspectSayTheSame) {
  const json zip = json::parse(zipped_.out);
  EXPECT_EQ(zip["method"], "vestige");
  EXPECT_EQ(zip["pairs_kept"], zip["pairs_total"]);
  const ProgramResult shown = run({"inspect", "doc.ctz", "--json"});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  const json file = json::parse(shown.out);
  EXPECT_EQ(file["format_version"], 4);
  EXPECT_EQ(file["recall"]["layers"], zip["recall"]["layers"]);
  const json layer = file["recall"]["layers"][0];
  EXPECT_EQ(layer["layer"], 1);
  EXPECT_EQ(layer["kept"].get<int>() + layer["archived"].get<int>() + layer["tail"].get<int>(),
            1200);
  EXPECT_EQ(layer["tail"], 64) << "the tokens that calibrate";
  EXPECT_EQ(layer["calibration"]["phase"], "calibrated");
  EXPECT_GT(layer["calibration"]["hard_queries"], 0);
  const ProgramResult compared = run({"inspect", "doc.ctz", "--against", "doc.ctz"});
  EXPECT_EQ(compared.exit_code, 1);
  EXPECT_NE(compared.err.find("evicts nothing"), std::string::npos) << compared.err;
  const std::string table = run({"inspect", "doc.ctz"}).out;
  EXPECT_NE(table.find("vestige, recall target 0.9"), std::string::npos) << table;
}

TEST_F(CliStream, AskReportsWhatWasRead) {
  const ProgramResult result = ask({"--audit", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json recall = json::parse(result.out)["recall"];
  for (const char* field : {"policy",
                            "target",
                            "sound",
                            "effective_ratio",
                            "resident_bytes",
                            "archive_bytes",
                            "rss_anonymous_bytes",
                            "rss_file_bytes",
                            "steps",
                            "layer_steps",
                            "trigger_rate",
                            "fired_rows",
                            "fetched_rows",
                            "dense_steps",
                            "overflowed_steps",
                            "bytes_read",
                            "bytes_dense",
                            "excluded_mass_limit",
                            "excluded_mass_vacuous",
                            "longest_pause_s",
                            "audit",
                            "layers"}) {
    EXPECT_TRUE(recall.contains(field)) << field;
  }
  EXPECT_GT(recall["steps"], 0);
  EXPECT_GT(recall["fired_rows"], 0);
  EXPECT_EQ(recall["audit"]["steps"], recall["steps"]);
  EXPECT_TRUE(recall["excluded_mass_limit"].is_number());
  EXPECT_LE(recall["audit"]["found"], recall["audit"]["queries"]);
  const ProgramResult text =
      run({"ask", "doc.ctz", "Who?", "-m", "kimi.gguf", "-n", "8", "--audit", "1"});
  EXPECT_NE(text.err.find("best rows found"), std::string::npos) << text.err;
  const json capped = json::parse(ask({"--per-head-cap", "1"}).out)["recall"];
  EXPECT_EQ(capped["layers"][0]["calibration"]["holds"], false) << "all that fire were promised";
  const json off = json::parse(ask({"--recall", "off"}).out)["recall"];
  EXPECT_EQ(off["fired_rows"], 0);
  EXPECT_LT(off["bytes_read"], off["bytes_dense"]);
}

TEST_F(CliStream, AnswersDoNotDependOnTheArchivesPlaceOrOnEachOther) {
  const json expected = answers(ask({}));
  const ProgramResult in_memory = ask({});
  const ProgramResult in_files = ask({"--archive", "rows"});
  EXPECT_EQ(answers(in_files), expected);
  const auto anonymous = [](const ProgramResult& result) {
    return json::parse(result.out)["recall"]["rss_anonymous_bytes"].get<int64_t>();
  };
  EXPECT_LT(anonymous(in_files), anonymous(in_memory));
  const ProgramResult alone =
      run({"ask", "doc.ctz", "And when?", "-m", "kimi.gguf", "-n", "12", "--json"});
  EXPECT_EQ(answers(alone)[0], expected[1]);
  for (const std::string& name : folder_->names()) EXPECT_EQ(name.find("rows"), std::string::npos);
}

TEST_F(CliStream, AChatWithoutAFileGrows) {
  const ProgramResult result =
      run({"chat", "-m", "kimi.gguf", "--policy", "vestige", "--block", "64", "--rho", "1/8",
           "--recall", "0.8", "-n", "60", "--json"},
          "Tell me something long about this.\nAnd more of it.\n/reset\nAgain.\n");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json chat = json::parse(result.out);
  EXPECT_FALSE(chat.contains("file"));
  EXPECT_EQ(chat["answers"].size(), 3u);
  EXPECT_EQ(chat["recall"]["target"], 0.8);
  EXPECT_GT(chat["recall"]["steps"], 3);
  const ProgramResult text =
      run({"chat", "-m", "kimi.gguf", "--policy", "vestige", "--recall", "off", "-n", "4"}, "Hi\n");
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_NE(text.err.find("vestige, recall off"), std::string::npos) << text.err;
}

TEST_F(CliStream, ChatAndAskTakeAFile) {
  const ProgramResult chat =
      run({"chat", "doc.ctz", "-m", "kimi.gguf", "-n", "5", "--sound", "--json"}, "Hello\n");
  ASSERT_EQ(chat.exit_code, 0) << chat.err;
  EXPECT_EQ(json::parse(chat.out)["recall"]["sound"], true);
  const ProgramResult limited = ask({"--sound", "--per-head-cap", "4"});
  EXPECT_NE(limited.exit_code, 0);
  EXPECT_NE(limited.err.find("rows for a head"), std::string::npos) << limited.err;
  EXPECT_EQ(ask({"--sound", "--recall", "off"}).exit_code, 2);
  const ProgramResult other = ask({"--recall", "0.7"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_NE(other.err.find("zip the text anew"), std::string::npos) << other.err;
}

TEST_F(CliStream, ModelsAndFlagsThatDoNotFitAreNamed) {
  write_model("rotary.gguf", "deepseek2");
  write_model("plain.gguf", "llama");
  const auto zip = [&](const char* model, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"zip",    "doc.txt", "-m",  model,      "-o",
                                          "no.ctz", "--block", "256", "--policy", "vestige"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(std::move(arguments));
  };
  const auto expect = [](const ProgramResult& result, int code, const char* part) {
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  expect(zip("rotary.gguf", {}), 1, "rotates the rows");
  expect(zip("plain.gguf", {"--control"}), 1, "plain KV heads");
  EXPECT_EQ(zip("rotary.gguf", {"--control"}).exit_code, 0);
  expect(zip("kimi.gguf", {"--ratio", "0.5"}), 2, "--policy vestige evicts nothing");
  expect(zip("kimi.gguf", {"--rho", "2"}), 2, "not a share");
  expect(zip("kimi.gguf", {"--recall", "1"}), 2, "--recall");
  expect(run({"zip", "doc.txt", "-m", "kimi.gguf", "--rho", "1/8"}), 2, "needs --policy vestige");
  expect(run({"chat", "-m", "kimi.gguf"}), 2, "--policy vestige");
  expect(run({"chat"}), 2, "FILE.ctz");
  test::write_tiny_model({.architecture = "kimi-linear", .n_expert = 0, .kinds = "rgrg"},
                         (folder_->path() / "ids.gguf").string());
  expect(run({"chat", "-m", "ids.gguf", "--policy", "vestige"}, "Hello\n"), 1, "no tokenizer");
  expect(run({"zip", "doc.txt", "-m", "kimi.gguf", "-o", "kvzip.ctz", "--no-check"}), 0, "");
  expect(run({"ask", "kvzip.ctz", "Who?", "-m", "kimi.gguf", "--sound"}), 2, "not under VestigeKV");
}

}  // namespace
}  // namespace ctxzip::cli
