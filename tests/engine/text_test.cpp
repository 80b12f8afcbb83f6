// Text in and out: document normalisation, UTF-8, streaming with stop strings.
#include <gtest/gtest.h>

#include "core/utf8.h"
#include "engine/document_text.h"
#include "engine/text_stream.h"

namespace ctxzip {
namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";

TEST(DocumentText, EditorsFormsOfOneDocumentAreEqual) {
  for (const char* form :
       {"one\ntwo", "one\ntwo\n", "one\r\ntwo\r\n", "\xEF\xBB\xBFone\ntwo\n\n", "one\rtwo"}) {
    EXPECT_EQ(normalise_document(form).text, "one\ntwo") << form;
  }
  EXPECT_EQ(normalise_document("\n\na\n\n\nb").text, "\n\na\n\n\nb");
  EXPECT_EQ(normalise_document("").text, "");
  EXPECT_EQ(normalise_document("\r\n\n").text, "");
}

TEST(DocumentText, InvalidBytesBecomeReplacements) {
  const DocumentText cut = normalise_document("caf\xC3");
  EXPECT_EQ(cut.text, std::string("caf") + kReplacement);
  EXPECT_EQ(cut.n_replaced, 1u);
  // GBK text: every pair is ill-formed here.
  EXPECT_GT(normalise_document("\xC4\xE3\xBA\xC3").n_replaced, 0u);
}

TEST(Utf8, RepairFollowsTheStandard) {
  EXPECT_EQ(repair_utf8("\xF0\x9F\x98\x80 ok \xED\x95\x9C"), "\xF0\x9F\x98\x80 ok \xED\x95\x9C");
  EXPECT_EQ(repair_utf8("\xC0\x80"), std::string(kReplacement) + kReplacement);  // overlong
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"),
            std::string(kReplacement) + kReplacement + kReplacement);  // surrogate
  EXPECT_EQ(repair_utf8("\xF4\x90\x80\x80").size(), 12u);              // above U+10FFFF
  EXPECT_EQ(repair_utf8("\xE2\x82z"), std::string(kReplacement) + "z");
}

TEST(Utf8, CompleteStopsBeforeAnUnfinishedCharacter) {
  const std::string text = "a\xE2\x82\xAC\xF0\x9F\x98\x80";
  for (const auto& [length, complete] : std::vector<std::pair<size_t, size_t>>{
           {0, 0}, {1, 1}, {2, 1}, {3, 1}, {4, 4}, {5, 4}, {6, 4}, {7, 4}, {8, 8}}) {
    EXPECT_EQ(complete_utf8(std::string_view(text).substr(0, length)), complete);
  }
  EXPECT_EQ(complete_utf8("\xFF"), 1u);  // can never be completed
}

struct Streamed {
  std::vector<std::string> pieces;
  std::string text;
  TextStream::State state = TextStream::State::kGoing;
};

Streamed stream(const std::vector<std::string>& stop, const std::vector<std::string>& tokens) {
  Streamed result;
  TextStream out(stop, [&](std::string_view piece) {
    result.pieces.emplace_back(piece);
    return true;
  });
  for (const std::string& token : tokens) {
    result.state = out.push(token);
    if (result.state != TextStream::State::kGoing) break;
  }
  if (result.state == TextStream::State::kGoing) out.finish();
  result.text = out.text();
  std::string joined;
  for (const std::string& piece : result.pieces) {
    EXPECT_EQ(repair_utf8(piece), piece);
    joined += piece;
  }
  EXPECT_EQ(joined, result.text);
  return result;
}

TEST(TextStream, CharactersSplitOverTokensArriveWhole) {
  const Streamed result = stream({}, {"x\xF0", "\x9F\x98", "\x80y", "\xE2"});
  EXPECT_EQ(result.pieces, (std::vector<std::string>{"x", "\xF0\x9F\x98\x80y", kReplacement}));
}

TEST(TextStream, StopStringsSplitOverTokensNeverLeak) {
  const Streamed result = stream({"END"}, {"one E", "N", "D two"});
  EXPECT_EQ(result.text, "one ");
  EXPECT_EQ(result.state, TextStream::State::kStopString);
}

TEST(TextStream, ABeginningOfAStopStringIsTextWhenItDoesNotGoOn) {
  EXPECT_EQ(stream({"END"}, {"one E", "N", "x"}).text, "one ENx");
  EXPECT_EQ(stream({"END"}, {"one EN"}).text, "one EN");
  EXPECT_EQ(stream({"aab"}, {"a", "a", "a", "b", "c"}).text, "a");
}

TEST(TextStream, TheFirstOfSeveralStopStringsWins) {
  EXPECT_EQ(stream({"\n\n", "User:"}, {"hi\n", "User: x\n", "\n"}).text, "hi\n");
  EXPECT_EQ(stream({""}, {"never", " stops"}).text, "never stops");
}

TEST(TextStream, RefusalEnds) {
  TextStream out({}, [](std::string_view) { return false; });
  EXPECT_EQ(out.push("a"), TextStream::State::kRefused);
}

}  // namespace
}  // namespace ctxzip
