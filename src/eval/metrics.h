// How an answer is compared with the accepted ones, as SQuAD publishes it. Each score is 0 to 1 and
// the best over all accepted answers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace ctxzip::eval
