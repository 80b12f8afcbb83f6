// The built program with the default model, on a short document.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/model_catalogue.h"
#include "run_program.h"

namespace ctxzip::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kDocument =
    "The lighthouse of Skarrholm was built in 1874 by Ingrid Vell. It stands on a rock of black "
    "basalt, 31 metres high, and its lamp burned rape oil until 1902. The keeper kept a goat named "
    "Admiral, which ate the logbook of 1888.\n\nSince 1967 the light is automatic. The café in the "
    "old boat house sells waffles – and nothing else – from May to September.\n";

// One cache folder and one zipped file for all tests: the model is linked into it, so that the
// user's own index stays as it is.
class CliModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = default_model().path();
    if (!default_model().installed()) return;
    folder_ = std::make_unique<ScratchFolder>();
    fs::create_directories(cache() / "models");
    fs::create_symlink(model_, cache() / "models" / fs::path(model_).filename());
    folder_->write("doc.txt", kDocument);
    zipped_ = run({"zip", "doc.txt", "-o", "doc.ctz", "--ratio", "0.5", "--json"});
  }
  static void TearDownTestSuite() { folder_.reset(); }

  void SetUp() override {
    if (!folder_) GTEST_SKIP() << "the default model is not installed: ctxzip model fetch";
    ASSERT_EQ(zipped_.exit_code, 0) << zipped_.err;
  }

  static fs::path cache() { return folder_->path() / "cache"; }
  // One thread: a busy machine would make several wait for each other.
  static ProgramResult run(std::vector<std::string> arguments, const std::string& input = "") {
    arguments.insert(arguments.end(), {"--threads", "1"});
    ProgramRun program{.arguments = std::move(arguments), .input = input};
    return run(program);
  }
  static ProgramResult run(ProgramRun& program) {
    program.folder = folder_->path();
    program.environment.emplace_back("CTXZIP_CACHE", cache().string());
    return run_program(program);
  }

  static std::string model_;
  static std::unique_ptr<ScratchFolder> folder_;
  static ProgramResult zipped_;
};

std::string CliModel::model_;
std::unique_ptr<ScratchFolder> CliModel::folder_;
ProgramResult CliModel::zipped_;

TEST_F(CliModel, ZipReportsEveryDocumentedField) {
  const json report = json::parse(zipped_.out);
  for (
      const char* field :
      {"file",           "file_bytes",    "model",           "model_path",      "model_fingerprint",
       "method",         "allocation",    "recon_attention", "chunk_tokens",    "row_type",
       "context_tokens", "prefix_tokens", "pairs_total",     "pairs_kept",      "ratio",
       "kv_bytes_full",  "kv_bytes_kept", "delta_nll",       "delta_nll_probe", "prefill_s",
       "score_s",        "check_s",       "compact_s",       "peak_kv_bytes",   "peak_rss_bytes",
       "notices"}) {
    EXPECT_TRUE(report.contains(field)) << field;
  }
  EXPECT_EQ(report["file"], "doc.ctz");
  EXPECT_EQ(report["file_bytes"], fs::file_size(folder_->path() / "doc.ctz"));
  EXPECT_GT(report["context_tokens"], 50);
  EXPECT_GT(report["pairs_total"], report["pairs_kept"]);
  EXPECT_EQ(report["method"], "kvzip");
}

TEST_F(CliModel, NothingButResultsInAPipe) {
  EXPECT_EQ(zipped_.err, "");
  const ProgramResult table = run({"zip", "doc.txt", "-o", "table.ctz", "--no-check"});
  EXPECT_EQ(table.exit_code, 0);
  EXPECT_EQ(table.err, "");
  EXPECT_NE(table.out.find("(the default"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("loss"), std::string::npos) << table.out;
}

TEST_F(CliModel, ATerminalShowsEstimateAndProgress) {
  ProgramRun program{.arguments = {"zip", "doc.txt", "-o", "seen.ctz", "-t", "1", "--no-check"},
                     .terminal = true};
  const ProgramResult result = run(program);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.err.find("of memory"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("prefill"), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("100%"), std::string::npos) << result.err;
}

TEST_F(CliModel, DefaultOutputIsTheTextsNameInThisFolder) {
  fs::create_directories(folder_->path() / "sub");
  folder_->write("sub/note.txt", "One two three.\n");
  EXPECT_EQ(run({"zip", "sub/note.txt"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(folder_->path() / "note.txt.ctz"));
}

TEST_F(CliModel, TextComesBack) {
  EXPECT_EQ(run({"text", "doc.ctz"}).out, kDocument);
  const json text = json::parse(run({"text", "doc.ctz", "--json"}).out);
  EXPECT_EQ(text["text"].get<std::string>() + "\n", kDocument);
}

TEST_F(CliModel, StandardInputAndSeveralFilesAreJoined) {
  folder_->write("b.txt", "The second text.");
  const ProgramResult zip = run({"zip", "-", "b.txt", "-o", "joined.ctz"}, "The first text.\n");
  EXPECT_EQ(zip.exit_code, 0) << zip.err;
  EXPECT_EQ(run({"text", "joined.ctz"}).out, "The first text.\n\nThe second text.\n");
}

TEST_F(CliModel, SeveralQuestionsAreAnsweredByThemselves) {
  const ProgramResult result = run({"ask", "doc.ctz", "Who built it?", "[When, where]",
                                    "Who built it?", "--max-tokens", "8", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json answers = json::parse(result.out)["answers"];
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[1]["question"], "[When, where]");
  EXPECT_EQ(answers[0]["answer"], answers[2]["answer"]);
  for (const json& answer : answers) {
    EXPECT_EQ(answer["context_tokens_prefilled"], 0);
    EXPECT_GT(answer["prompt_tokens"], 0);
    EXPECT_LE(answer["output_tokens"], 8);
    EXPECT_GE(answer["tokens_per_s"], 0);
    EXPECT_TRUE(answer["stop_reason"] == "end" || answer["stop_reason"] == "length");
  }
}

TEST_F(CliModel, QuestionsFromStandardInput) {
  const ProgramResult result =
      run({"ask", "doc.ctz", "-", "-n", "8"}, "Who built it?\r\n\nWho kept a goat?\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.rfind("Q: Who built it?\nA: ", 0), 0U) << result.out;
  EXPECT_NE(result.out.find("\n\nQ: Who kept a goat?\nA: "), std::string::npos) << result.out;
}

TEST_F(CliModel, OneQuestionPrintsTheAnswerAlone) {
  const ProgramResult result = run({"ask", "doc.ctz", "Who built it?", "-n", "8"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out.find("Q: "), std::string::npos) << result.out;
  EXPECT_TRUE(result.out.size() > 1 && result.out.back() == '\n') << result.out;
}

TEST_F(CliModel, InvalidUtf8InAQuestionStaysOutOfTheJson) {
  const ProgramResult result = run({"ask", "doc.ctz", "caf\xff?", "-n", "2", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(json::accept(result.out)) << result.out;
}

TEST_F(CliModel, ChatTakesOneMessageALine) {
  const ProgramResult result = run({"chat", "doc.ctz", "-n", "8", "--json"},
                                   "Who built it?\n\n/reset\nAnd when?\n/quit\nno\n");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json chat = json::parse(result.out);
  ASSERT_EQ(chat["answers"].size(), 2U);
  EXPECT_EQ(chat["answers"][1]["question"], "And when?");
  EXPECT_GT(chat["turn_tokens"], 0);
  EXPECT_EQ(run({"chat", "doc.ctz", "-n", "2"}, "Hello\n").out.find('>'), std::string::npos);
}

TEST_F(CliModel, InspectNeedsNoModel) {
  ProgramRun program{.arguments = {"inspect", "doc.ctz", "--json"}};
  program.environment = {{"CTXZIP_CACHE", "/nonexistent"}};
  program.folder = folder_->path();
  const ProgramResult result = run_program(program);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json info = json::parse(result.out);
  const json zip = json::parse(zipped_.out);
  EXPECT_EQ(info["heads"]["kept"].size(), info["heads"]["layers"].size());
  for (const char* field : {"pairs_kept", "kv_bytes_kept", "model_fingerprint", "delta_nll"}) {
    EXPECT_EQ(info[field], zip[field]) << field;
  }
}

TEST_F(CliModel, RowTypesAndSchedulesAreStoredAndShown) {
  const auto result = run({"zip", "doc.txt", "-o", "q4.ctz", "--kv", "q4", "--schedule",
                           "streaming", "--chunk", "64", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json zipped = json::parse(result.out);
  EXPECT_EQ(zipped["row_type"], "q4");
  EXPECT_EQ(zipped["schedule"], "streaming");
  const auto inspected = run({"inspect", "q4.ctz", "--json"});
  EXPECT_EQ(json::parse(inspected.out)["schedule"], "streaming");
  const auto asked = run({"ask", "q4.ctz", "How high is the rock?", "-n", "4", "--json"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  const auto refused =
      run({"zip", "doc.txt", "-o", "no.ctz", "--schedule", "streaming", "--quality", "0.1"});
  EXPECT_EQ(run({"zip", "doc.txt", "-o", "no.ctz", "--schedule", "streaming", "--recon-attention",
                 "full"})
                .exit_code,
            2);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("two-pass"), std::string::npos) << refused.err;
}

TEST_F(CliModel, BenchMeasuresBesideLlamaCpp) {
  const auto result = run({"bench", "--context", "64,96", "--ratios", "1,0.5", "--rounds", "1",
                           "--plot", "speed.svg", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json report = json::parse(result.out);
  ASSERT_EQ(report["rows"].size(), 4u);
  for (const json& row : report["rows"]) {
    EXPECT_GT(row["prefill_tokens_per_s"], 0);
    EXPECT_GT(row["decode_vs_llama_cpp"], 0);
    EXPECT_TRUE(row["delta_nll"].is_number());
  }
  EXPECT_EQ(report["rows"][3]["ratio"], 0.5);
  EXPECT_EQ(report["llama_cpp"].size(), 2u);
  EXPECT_TRUE(fs::exists(folder_->path() / "speed.svg"));
  EXPECT_EQ(run({"bench", "--ratios", "2"}).exit_code, 2);
  const auto repeated = run({"bench", "--context", "1200", "--ratios", "0.3", "--decode-only",
                             "--rounds", "1", "--sessions", "1", "--json"});
  ASSERT_EQ(repeated.exit_code, 0) << repeated.err;
  const json decoding = json::parse(repeated.out);
  EXPECT_GT(decoding["rows"][0]["decode_vs_llama_cpp"], 0);
  EXPECT_TRUE(decoding["rows"][0]["prefill_tokens_per_s"].is_null());
  EXPECT_TRUE(decoding["llama_cpp"][0]["prefill_tokens_per_s"].is_null());
  EXPECT_EQ(run({"bench", "--context", "99999999999"}).exit_code, 2);
  const auto unwritable = run({"bench", "--plot", "nowhere/speed.svg"});
  EXPECT_EQ(unwritable.exit_code, 1);
  EXPECT_NE(unwritable.err.find("nowhere"), std::string::npos) << unwritable.err;
}

TEST_F(CliModel, ModelInfoSaysWhatAContextCosts) {
  ProgramRun program{.arguments = {"model", "info", "--tokens", "1000", "--json"}};
  const auto result = run(program);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json info = json::parse(result.out);
  EXPECT_EQ(info["kv_bytes_full"], 1000 * info["kv_bytes_per_token"].get<int64_t>());
  EXPECT_EQ(info["kv_bytes_at_30_percent"], 300 * info["kv_bytes_per_token"].get<int64_t>());
}

TEST_F(CliModel, InspectPrintsTablesAndWords) {
  EXPECT_NE(run({"inspect", "doc.ctz"}).out.find("layer"), std::string::npos);
  EXPECT_NE(run({"inspect", "doc.ctz", "--heads"}).out.find("head 2"), std::string::npos);
  const std::string words = run({"inspect", "doc.ctz", "--words"}).out;
  EXPECT_NE(words.find("lighthouse"), std::string::npos) << words;
  EXPECT_EQ(words.find('\x1b'), std::string::npos) << words;
  const json info = json::parse(run({"inspect", "doc.ctz", "--words", "--json"}).out);
  std::string joined;
  for (const json& word : info["words"]) joined += word["text"];
  EXPECT_EQ(joined + "\n", kDocument);
}

TEST_F(CliModel, InspectDrawsWhatWasKept) {
  const auto drawn = run({"inspect", "doc.ctz", "--heatmap", "kept.png"});
  EXPECT_EQ(drawn.exit_code, 0);
  EXPECT_NE(drawn.out.find("heatmap: kept.png"), std::string::npos) << drawn.out;
  EXPECT_EQ(folder_->read("kept.png").substr(1, 3), "PNG");
  const auto page_run = run({"inspect", "doc.ctz", "--heatmap", "kept.html"});
  EXPECT_EQ(page_run.exit_code, 0) << page_run.err;
  const std::string page = folder_->read("kept.html");
  EXPECT_NE(page.find("data:image/png;base64,iVBOR"), std::string::npos);
  EXPECT_NE(page.find("lighthouse"), std::string::npos);
  EXPECT_EQ(run({"inspect", "doc.ctz", "--heatmap", "scores.png", "--scores"}).exit_code, 0);
  EXPECT_GT(folder_->read("scores.png").size(), folder_->read("kept.png").size());
  EXPECT_EQ(run({"inspect", "doc.ctz", "--heatmap", "both.html", "--scores"}).exit_code, 0);
  EXPECT_NE(folder_->read("both.html").find("Scores by layer and head"), std::string::npos);
  EXPECT_EQ(run({"inspect", "doc.ctz", "--heatmap", "kept.gif"}).exit_code, 2);
  EXPECT_EQ(run({"inspect", "doc.ctz", "--heatmap", "nowhere/kept.png"}).exit_code, 1);
}

TEST_F(CliModel, InspectCountsWhatTwoZipsShare) {
  ASSERT_EQ(
      run({"zip", "doc.txt", "-o", "random.ctz", "--method", "random", "--no-check"}).exit_code, 0);
  const json same =
      json::parse(run({"inspect", "doc.ctz", "--against", "doc.ctz", "--json"}).out)["against"];
  EXPECT_EQ(same["shared"], same["pairs_kept"]);
  EXPECT_EQ(same["share"], 1.0);
  const json other =
      json::parse(run({"inspect", "doc.ctz", "--against", "random.ctz", "--json"}).out)["against"];
  const json back =
      json::parse(run({"inspect", "random.ctz", "--against", "doc.ctz", "--json"}).out)["against"];
  EXPECT_EQ(other["shared"], back["shared"]);
  EXPECT_NEAR(other["share"], other["by_chance"], 0.1);
  EXPECT_NE(run({"inspect", "doc.ctz", "--against", "random.ctz"}).out.find("by chance"),
            std::string::npos);
  folder_->write("other.txt", std::string(kDocument) + "One sentence more than the other has.\n");
  ASSERT_EQ(run({"zip", "other.txt", "-o", "other.ctz", "--no-check"}).exit_code, 0);
  const ProgramResult longer = run({"inspect", "doc.ctz", "--against", "other.ctz"});
  EXPECT_EQ(longer.exit_code, 1);
  EXPECT_NE(longer.err.find("only zips of one text"), std::string::npos) << longer.err;
  // As many tokens, in another order.
  folder_->write("one.txt", "one two three four five six seven eight nine ten");
  folder_->write("two.txt", "one two three four five six seven eight ten nine");
  for (const char* name : {"one", "two"}) {
    ASSERT_EQ(
        run({"zip", std::string(name) + ".txt", "-o", std::string(name) + ".ctz", "--no-check"})
            .exit_code,
        0);
  }
  const ProgramResult reordered = run({"inspect", "one.ctz", "--against", "two.ctz"});
  EXPECT_EQ(reordered.exit_code, 1);
  EXPECT_NE(reordered.err.find("another text"), std::string::npos) << reordered.err;
  EXPECT_EQ(run({"inspect", "doc.ctz", "--against", ""}).exit_code, 2);
}

TEST_F(CliModel, AnalyzeFillsAFolderAndPrintsItsFigures) {
  const ProgramResult result =
      run({"analyze", "doc.txt", "-o", "new/analysis", "--json", "-n", "8", "-q", "Who built it?",
           "-q", "What was the goat's name?", "--what", "sparsity,maps,overlap,source"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const json printed = json::parse(result.out);
  EXPECT_EQ(printed["tasks"].size(), 5u);
  EXPECT_EQ(printed["tasks"][3]["question"], "What was the goat's name?");
  EXPECT_EQ(printed["overlap"].size(), 8u);
  EXPECT_GT(printed["from_repeated_text"]["kept"], 0.5);
  for (const json& file : printed["files"]) {
    EXPECT_TRUE(fs::exists(folder_->path() / "new/analysis" / file.get<std::string>())) << file;
  }
  const json written = json::parse(folder_->read("new/analysis/analysis.json"));
  EXPECT_EQ(written["sparsity"], printed["sparsity"]);
  folder_->write("short.txt", "Too short.");
  EXPECT_EQ(run({"analyze", "short.txt", "-o", "short"}).exit_code, 1);
  EXPECT_EQ(run({"analyze", "doc.txt", "-o", "short.txt"}).exit_code, 1);
}

TEST_F(CliModel, AModelThatIsNotKnownHereIsNamed) {
  ProgramRun program{.arguments = {"ask", "doc.ctz", "Who?"}};
  program.folder = folder_->path();
  program.environment = {{"CTXZIP_CACHE", (folder_->path() / "empty").string()}};
  const ProgramResult result = run_program(program);
  EXPECT_EQ(result.exit_code, 1);
  const json zip = json::parse(zipped_.out);
  EXPECT_NE(result.err.find(zip["model_fingerprint"].get<std::string>()), std::string::npos)
      << result.err;
  EXPECT_NE(result.err.find("-m"), std::string::npos) << result.err;
  program.arguments = {"ask", "doc.ctz", "Who?", "-n", "2", "-t", "1", "-m", model_};
  EXPECT_EQ(run_program(program).exit_code, 0);
}

TEST_F(CliModel, TheModelOfAFileIsFoundAmongTheInstalledOnes) {
  fs::remove(cache() / "models.json");
  EXPECT_EQ(run({"ask", "doc.ctz", "Who?", "-n", "2"}).exit_code, 0);
  EXPECT_TRUE(fs::exists(cache() / "models.json"));
}

// As after an upgrade that counts more into a fingerprint, or when a file was replaced.
TEST_F(CliModel, AModelListedUnderAnotherFingerprintIsFoundAndListedAnew) {
  const std::string path = (cache() / "models" / fs::path(model_).filename()).string();
  const json stale = {{"0123456789abcdef", {{"name", "x"}, {"path", path}}}};
  folder_->write("cache/models.json", stale.dump());
  EXPECT_EQ(run({"ask", "doc.ctz", "Who?", "-n", "2"}).exit_code, 0);
  const json index = json::parse(folder_->read("cache/models.json"));
  EXPECT_FALSE(index.contains("0123456789abcdef"));
  EXPECT_EQ(index.size(), 1u);
}

TEST_F(CliModel, InterruptLeavesTheOldFileAndNoOther) {
  std::string text;
  for (int copy = 0; copy < 40; ++copy) text += kDocument;
  folder_->write("long.txt", text);
  folder_->write("old.ctz", "old");
  const auto before = folder_->names();
  ProgramRun program{.arguments = {"zip", "long.txt", "-o", "old.ctz", "-t", "1"},
                     .terminal = true};
  program.interrupt_after = std::chrono::milliseconds(1500);
  const ProgramResult result = run(program);
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_EQ(folder_->read("old.ctz"), "old");
  EXPECT_EQ(folder_->names(), before);
}

}  // namespace
}  // namespace ctxzip::cli
