#include "eval/metrics.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ctxzip::eval {
namespace {

using Answers = std::vector<std::string>;

// Expected values follow the published evaluate-v1.1.py, worked by hand.
TEST(NormaliseAnswer, LowersAndDropsPunctuationArticlesAndSpaces) {
  EXPECT_EQ(normalise_answer("The Panthers' defense."), "panthers defense");
  EXPECT_EQ(normalise_answer("  an  Apple,\ta day\n"), "apple day");
  EXPECT_EQ(normalise_answer("U.S. $1,000"), "us 1000");
  EXPECT_EQ(normalise_answer("the-cat"), "thecat");
  EXPECT_EQ(normalise_answer("then another athlete"), "then another athlete");
  EXPECT_EQ(normalise_answer(""), "");
  EXPECT_EQ(normalise_answer("The"), "");
}

TEST(NormaliseAnswer, BeyondAscii) {
  EXPECT_EQ(normalise_answer("\u00c9COLE Stra\u00dfe"), "\u00e9cole stra\u00dfe");
  EXPECT_EQ(normalise_answer("\u0141\u00f3d\u017a \u039a\u03a1 \u041c\u0401"),
            "\u0142\u00f3d\u017a \u03ba\u03c1 \u043c\u0451");
  // A no-break space parts words; typographic marks stay but bound an article.
  EXPECT_EQ(normalise_answer("the\u00a0cat"), "cat");
  EXPECT_EQ(normalise_answer("\u201cThe cat\u201d"), "\u201c cat\u201d");
  EXPECT_EQ(normalise_answer("the\u201ccat"), "\u201ccat");
  EXPECT_EQ(normalise_answer("5\u00bd \u4e2d\u6587 \U0001f600"), "5\u00bd \u4e2d\u6587 \U0001f600");
  EXPECT_EQ(normalise_answer("bad \xff byte"), "bad \ufffd byte");
}

TEST(SubstringMatch, ContainsAnyAnswer) {
  EXPECT_EQ(substring_match("It was Kawann Short, again.", Answers{"Kawann Short"}), 1);
  EXPECT_EQ(substring_match("kawann\nshort", Answers{"nobody", "Kawann Short"}), 1);
  EXPECT_EQ(substring_match("Short, Kawann", Answers{"Kawann Short"}), 0);
  // As published: not bound to whole words.
  EXPECT_EQ(substring_match("1368", Answers{"136"}), 1);
  EXPECT_EQ(substring_match("", Answers{"x"}), 0);
}

TEST(SubstringMatch, AnEmptyAnswerMatchesOnlyNothing) {
  EXPECT_EQ(substring_match("anything", Answers{"the"}), 0);
  EXPECT_EQ(substring_match("...", Answers{"the"}), 1);
  EXPECT_EQ(substring_match("anything", Answers{}), 0);
}

TEST(SubstringMatch, AnEmptyFirstLineIsNoEnd) {
  EXPECT_EQ(substring_match("\n\nKawann Short", Answers{"Kawann Short"}), 1);
}

TEST(ExactMatch, AfterNormalisation) {
  EXPECT_EQ(exact_match("The 24.", Answers{"24"}), 1);
  EXPECT_EQ(exact_match("24 points", Answers{"24"}), 0);
  EXPECT_EQ(exact_match("24 points", Answers{"24", "24 points"}), 1);
}

TEST(TokenF1, HandWorked) {
  EXPECT_DOUBLE_EQ(token_f1("Kawann Short", Answers{"kawann short"}), 1);
  // 2 of 4 words right, 2 of 2 found: P = 1/2, R = 1.
  EXPECT_DOUBLE_EQ(token_f1("it was Kawann Short", Answers{"Kawann Short"}), 2.0 / 3);
  // Repetitions count once for each time the answer has the word: P = 1/3, R = 1/2.
  EXPECT_DOUBLE_EQ(token_f1("four four four", Answers{"four times"}), 0.4);
  EXPECT_DOUBLE_EQ(token_f1("nothing", Answers{"four"}), 0);
  EXPECT_DOUBLE_EQ(token_f1("the", Answers{"four"}), 0);
  EXPECT_DOUBLE_EQ(token_f1("the", Answers{"a"}), 1);
  EXPECT_DOUBLE_EQ(token_f1("four times", Answers{"four", "four times"}), 1);
}

}  // namespace
}  // namespace ctxzip::eval
