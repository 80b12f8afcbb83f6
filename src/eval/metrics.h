// How an answer is compared with what is right, as the benchmarks publish it. Each score is 0 to 1;
// unless it says otherwise, it is the best over all accepted answers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"

namespace ctxzip::eval {

// Lower case, no ASCII punctuation, no articles (a, an, the), single spaces between words.
// Letters are lowered in the Latin, Greek and Cyrillic blocks, others stay as they are.
std::string normalise_answer(std::string_view text);

// Words of the normalised text.
std::vector<std::string> answer_words(std::string_view text);

// The normalised output contains a normalised answer, also inside a word. An answer of which
// normalisation leaves nothing matches only an output of which it leaves nothing.
double substring_match(std::string_view output, std::span<const std::string> answers);
// The normalised output is a normalised answer.
double exact_match(std::string_view output, std::span<const std::string> answers);
// Harmonic mean of precision and recall of the words, counted with repetitions.
double token_f1(std::string_view output, std::span<const std::string> answers);

// The better of the two: what KVzip's authors report for En.QA.
double f1_or_substring(std::string_view output, std::span<const std::string> answers);

// RULER's two matches, without normalisation but whatever the case of ASCII letters: the output
// contains an answer; the share of the answers that it contains.
double contains_any(std::string_view output, std::span<const std::string> answers);
double contains_all(std::string_view output, std::span<const std::string> answers);

// The first or last number of the output equals an answer: "$1,234.50" is 1234.5.
double first_number_match(std::string_view output, std::span<const std::string> answers);
double last_number_match(std::string_view output, std::span<const std::string> answers);

// Multiple choice. answers[0] is the right letter, the others are the text of that option. The
// letter is the one after "answer is" or "answer:", or else the first that stands alone; an output
// without any is right when it contains the option's text.
double choice_match(std::string_view output, std::span<const std::string> answers);

// ROUGE-L: harmonic mean of precision and recall of the longest common subsequence of words (runs
// of letters and digits, ASCII lowered, no stemming).
double rouge_l(std::string_view output, std::span<const std::string> answers);

// Sentence BLEU of words between blanks: up to 4-grams, Chen and Cherry's smoothing 4. The output's
// first fenced block counts if it has one.
double code_similarity(std::string_view output, std::span<const std::string> answers);
// RepoQA's pass@1: 1 if the output is at least 0.8 similar to the right function and less similar
// to every other one (question.others).
double code_pass(std::string_view output, const EvalQuestion& question);

// A score of the answers alone as a Metric takes it.
template <double (*kScore)(std::string_view, std::span<const std::string>)>
double of_answers(std::string_view output, const EvalQuestion& question) {
  return kScore(output, question.answers);
}

}  // namespace ctxzip::eval
