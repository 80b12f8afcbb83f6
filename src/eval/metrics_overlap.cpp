// Scores from common subsequences and n-grams of words.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>

#include "eval/metrics.h"

namespace ctxzip::eval {
namespace {

using Words = std::vector<std::string>;

constexpr size_t kLongestGram = 4;
constexpr double kPassSimilarity = 0.8;

// Runs of letters and digits; bytes of other alphabets count as letters.
Words plain_words(std::string_view text) {
  Words words(1);
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool in_word =
        (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || static_cast<unsigned char>(c) >= 0x80;
    if (in_word) {
      words.back() += c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

Words between_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n\f\v";
  Words words;
  for (size_t at = text.find_first_not_of(kBlanks); at != std::string_view::npos;
       at = text.find_first_not_of(kBlanks, at)) {
    const size_t end = std::min(text.find_first_of(kBlanks, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

size_t common_subsequence(const Words& a, const Words& b) {
  std::vector<size_t> above(b.size() + 1);  // lengths for the words of a so far
  std::vector<size_t> row(b.size() + 1);
  for (const std::string& word : a) {
    for (size_t at = 0; at < b.size(); ++at) {
      row[at + 1] = word == b[at] ? above[at] + 1 : std::max(above[at + 1], row[at]);
    }
    std::swap(above, row);
  }
  return above[b.size()];
}

std::map<Words, int64_t> grams(const Words& words, size_t n) {
  std::map<Words, int64_t> counts;
  for (size_t at = 0; at + n <= words.size(); ++at) {
    const auto first = words.begin() + static_cast<std::ptrdiff_t>(at);
    ++counts[Words(first, first + static_cast<std::ptrdiff_t>(n))];
  }
  return counts;
}

// Papineni et al., with smoothing method 4 of Chen and Cherry 2014 (k = 5) as NLTK computes it: an
// order without a match counts ln(words) / (5 * 2^i) matches, i counting such orders.
double bleu(const Words& output, const Words& reference) {
  if (output.empty() || reference.empty()) return 0;
  const double n_words = static_cast<double>(output.size());
  double log_sum = 0;
  double n_unmatched = 0;
  for (size_t n = 1; n <= kLongestGram; ++n) {
    const auto wanted = grams(reference, n);
    int64_t matched = 0;
    for (const auto& [gram, count] : grams(output, n)) {
      const auto found = wanted.find(gram);
      if (found != wanted.end()) matched += std::min(count, found->second);
    }
    if (matched == 0 && n == 1) return 0;
    double numerator = static_cast<double>(matched);
    if (matched == 0) numerator = std::log(n_words) / (5 * std::exp2(++n_unmatched));
    const double denominator = std::max(1.0, n_words - static_cast<double>(n) + 1);
    if (numerator > 0) log_sum += std::log(numerator / denominator) / kLongestGram;
  }
  const double n_reference = static_cast<double>(reference.size());
  const double brevity = n_words > n_reference ? 1 : std::exp(1 - n_reference / n_words);
  return brevity * std::exp(log_sum);
}

// The content of the first fenced block, also when its end is missing; the text itself without one.
std::string_view first_block(std::string_view text) {
  constexpr std::string_view kFence = "```";
  const size_t open = text.find(kFence);
  if (open == std::string_view::npos) return text;
  const size_t line_end = text.find('\n', open);
  if (line_end == std::string_view::npos) return text;
  const std::string_view block = text.substr(line_end + 1);
  return block.substr(0, block.find(kFence));
}

template <typename Score>
double best(std::span<const std::string> answers, Score score) {
  double best = 0;
  for (const std::string& answer : answers) best = std::max(best, score(answer));
  return best;
}

}  // namespace

double rouge_l(std::string_view output, std::span<const std::string> answers) {
  const Words words = plain_words(output);
  return best(answers, [&](const std::string& answer) {
    const Words wanted = plain_words(answer);
    if (words.empty() || wanted.empty()) return 0.0;
    return 2.0 * static_cast<double>(common_subsequence(words, wanted)) /
           static_cast<double>(words.size() + wanted.size());
  });
}

double code_similarity(std::string_view output, std::span<const std::string> answers) {
  const Words words = between_blanks(first_block(output));
  return best(answers,
              [&](const std::string& answer) { return bleu(words, between_blanks(answer)); });
}

double code_pass(std::string_view output, const EvalQuestion& question) {
  const double right = code_similarity(output, question.answers);
  return right >= kPassSimilarity && right > code_similarity(output, question.others);
}

}  // namespace ctxzip::eval
