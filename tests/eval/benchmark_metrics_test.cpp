#include <gtest/gtest.h>

#include "eval/metrics.h"

namespace ctxzip::eval {
namespace {

using Answers = std::vector<std::string>;

TEST(ContainsAny, WhateverTheCaseButNotNormalised) {
  EXPECT_EQ(contains_any("It is AMBER-lantern.", Answers{"amber-Lantern"}), 1);
  EXPECT_EQ(contains_any("amber lantern", Answers{"amber-lantern"}), 0);
  EXPECT_EQ(contains_any("second", Answers{"first", "second"}), 1);
  EXPECT_EQ(contains_any("", Answers{"x"}), 0);
}

TEST(ContainsAll, IsTheShareFound) {
  EXPECT_DOUBLE_EQ(contains_all("QWERT, then abcde", Answers{"ABCDE", "QWERT"}), 1);
  EXPECT_DOUBLE_EQ(contains_all("ABCDE only", Answers{"ABCDE", "QWERT", "ZXCVB", "POIUY"}), 0.25);
  EXPECT_DOUBLE_EQ(contains_all("ABCDE", Answers{}), 0);
}

TEST(F1OrSubstring, IsTheBetterOne) {
  // F1: P = 2/6, R = 1; the substring counts fully.
  EXPECT_DOUBLE_EQ(f1_or_substring("his name was surely Jonas Pell", Answers{"Jonas Pell"}), 1);
  EXPECT_DOUBLE_EQ(f1_or_substring("Pell, Jonas", Answers{"Jonas Pell"}), 1);
  // No substring; P = 1/2, R = 1/2.
  EXPECT_DOUBLE_EQ(f1_or_substring("Jonas Bell", Answers{"Jonas Pell"}), 0.5);
}

TEST(LastNumber, ReadsNumbersAsPeopleWriteThem) {
  EXPECT_EQ(last_number_match("16 - 3 - 4 = 9, so 9 * 2 = $18.", Answers{"18"}), 1);
  EXPECT_EQ(last_number_match("She makes $18 a day for 2 days", Answers{"18"}), 0);
  EXPECT_EQ(last_number_match("The profit is $70,000.00!", Answers{"70000"}), 1);
  EXPECT_EQ(last_number_match("It is 1,234,567", Answers{"1234567"}), 1);
  EXPECT_EQ(last_number_match("70000", Answers{"70,000"}), 1);
  // Three digits behind a comma belong together, others do not.
  EXPECT_EQ(last_number_match("1, 25", Answers{"25"}), 1);
  EXPECT_EQ(last_number_match("3,25", Answers{"25"}), 1);
  EXPECT_EQ(last_number_match("it falls to -5", Answers{"-5"}), 1);
  EXPECT_EQ(last_number_match("10-5", Answers{"5"}), 1);
  EXPECT_EQ(last_number_match("0.5", Answers{"5"}), 0);
  EXPECT_EQ(last_number_match("no number", Answers{"5"}), 0);
  EXPECT_EQ(last_number_match("", Answers{"5"}), 0);
}

TEST(FirstNumber, TakesTheFirst) {
  EXPECT_EQ(first_number_match("The largest is 97, not 12.", Answers{"97"}), 1);
  EXPECT_EQ(first_number_match("97 is larger than 12", Answers{"12"}), 0);
  EXPECT_EQ(first_number_match("97.0", Answers{"97"}), 1);
}

TEST(ChoiceMatch, FindsTheLetter) {
  const Answers right{"B", "in the harbour"};
  for (const char* output :
       {"B", "B.", "(B)", "B. In the harbour", " b is wrong, the answer is B", "**B**",
        "The correct answer is: B", "Answer: (B) in the harbour", "Option B",
        "A man came, so the answer is B", "in the harbour", "It was in the Harbour."}) {
    EXPECT_EQ(choice_match(output, right), 1) << output;
  }
  for (const char* output : {"A", "C. In the harbour", "The answer is D, not B", "on the hill", "",
                             "Because it was not in town"}) {
    EXPECT_EQ(choice_match(output, right), 0) << output;
  }
  EXPECT_EQ(choice_match("A", Answers{"A"}), 1);
  EXPECT_EQ(choice_match("nothing", Answers{"A"}), 0);
}

TEST(RougeL, HandWorked) {
  // The common subsequence is "the cat on mat": 4 of 6 words and 4 of 6.
  EXPECT_DOUBLE_EQ(rouge_l("the cat sat on the mat", Answers{"The cat lay on a mat!"}), 2.0 / 3);
  // Lin 2004: "the gunman" of 4 and 4.
  EXPECT_DOUBLE_EQ(rouge_l("police killed the gunman", Answers{"the gunman kill police"}), 0.5);
  // P = 1/2, R = 1/4.
  EXPECT_DOUBLE_EQ(rouge_l("one two", Answers{"two three four five"}), 1.0 / 3);
  EXPECT_DOUBLE_EQ(rouge_l("x", Answers{"y", "X."}), 1);
  EXPECT_DOUBLE_EQ(rouge_l("", Answers{"y"}), 0);
}

// Values of nltk.translate.bleu_score.sentence_bleu 3.10.4 with SmoothingFunction().method4.
TEST(CodeSimilarity, IsSmoothedBleu) {
  EXPECT_DOUBLE_EQ(code_similarity("a b c d e f", Answers{"a b c d e f"}), 1);
  // Matches of 5/6, 3/5, 2/4 and 1/3.
  EXPECT_NEAR(code_similarity("a b c d x f", Answers{"a b c d e f"}), 0.537284965911771, 1e-12);
  // Shorter than the reference, and orders without a match.
  EXPECT_NEAR(code_similarity("a x c", Answers{"a b c d"}), 0.06177541927786947, 1e-12);
  EXPECT_NEAR(code_similarity("a b", Answers{"a b c"}), 0.13427896671164932, 1e-12);
  EXPECT_DOUBLE_EQ(code_similarity("a", Answers{"a"}), 1);
  EXPECT_DOUBLE_EQ(code_similarity("x y z", Answers{"a b c"}), 0);
  EXPECT_DOUBLE_EQ(code_similarity("", Answers{"a b c"}), 0);
}

TEST(CodeSimilarity, LooksIntoTheFirstBlock) {
  EXPECT_DOUBLE_EQ(
      code_similarity("Here it is:\n```cpp\nint f() {\n}\n```\nDone.", Answers{"int f() { }"}), 1);
  EXPECT_DOUBLE_EQ(code_similarity("```\nint f() { }", Answers{"int f() { }"}), 1);
}

TEST(CodePass, NeedsTheRightFunctionAndEnoughOfIt) {
  const EvalQuestion question{.id = "0",
                              .text = "",
                              .answers = {"int one ( int a ) { return a + 1 ; }"},
                              .others = {"int two ( int a ) { return a + 2 ; }"}};
  EXPECT_EQ(code_pass(question.answers[0], question), 1);
  EXPECT_EQ(code_pass(question.others[0], question), 0);
  EXPECT_EQ(code_pass("int one", question), 0);
  EXPECT_EQ(code_pass("", question), 0);
  EvalQuestion same = question;
  same.others = same.answers;  // cannot be told apart
  EXPECT_EQ(code_pass(question.answers[0], same), 0);
}

}  // namespace
}  // namespace ctxzip::eval
