#include "cli/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace ctxzip::cli {
namespace {

constexpr std::array kRaisedDigits{"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
constexpr std::string_view kBlanks = " \t\r\n";

bool is_blank(char c) { return kBlanks.find(c) != std::string_view::npos; }

// Lead bytes 0xE3..0xED begin the characters U+3000 to U+DFFF: Chinese, Japanese, Korean.
bool begins_unspaced_script(const std::string& text) {
  return !text.empty() && static_cast<unsigned char>(text[0]) >= 0xE3 &&
         static_cast<unsigned char>(text[0]) <= 0xED;
}

size_t tenth(double share) {
  return static_cast<size_t>(std::clamp(static_cast<int>(share * 10), 0, 9));
}

// Splits "\n\n  word" into the blanks and the rest.
std::pair<std::string_view, std::string_view> split_blanks(const std::string& text) {
  const size_t at = std::min(text.find_first_not_of(kBlanks), text.size());
  return {std::string_view(text).substr(0, at), std::string_view(text).substr(at)};
}

// From dark to bright grey of the 256-colour palette (232..255).
std::string shaded(std::string_view text, double share) {
  return fmt::format("\x1b[38;5;{}m{}\x1b[0m", 237 + 2 * tenth(share), text);
}

}  // namespace

std::vector<Word> words_of(const Context& context) {
  const std::vector<double> shares = context.kept_share();
  const std::vector<Token>& tokens = context.tokens();
  std::vector<Word> words;
  size_t n_in_word = 0;
  for (size_t at = 0; at < tokens.size() && at < shares.size(); ++at) {
    const std::string piece = context.model().detokenize({tokens[at]});
    const bool starts = words.empty() || begins_unspaced_script(piece) ||
                        (!piece.empty() && is_blank(piece[0]) &&
                         words.back().text.find_first_not_of(kBlanks) != std::string::npos);
    if (starts) {
      words.emplace_back();
      n_in_word = 0;
    }
    Word& word = words.back();
    word.text += piece;
    ++n_in_word;
    word.kept_share += (shares[at] - word.kept_share) / static_cast<double>(n_in_word);
  }
  return words;
}

std::string marked_text(std::span<const Word> words, bool colour) {
  std::string out;
  for (const Word& word : words) {
    const auto [blanks, rest] = split_blanks(word.text);
    out += blanks;
    if (rest.empty()) continue;
    // A mark belongs before a line end inside the token, not after it.
    const size_t end = rest.find_last_not_of(kBlanks) + 1;
    if (colour) {
      out += shaded(rest.substr(0, end), word.kept_share);
    } else {
      out += rest.substr(0, end);
      out += kRaisedDigits[tenth(word.kept_share)];
    }
    out += rest.substr(end);
  }
  return out;
}

std::string marks_legend(bool colour) {
  if (!colour) {
    return "A raised digit is the share of heads that kept the word, in tenths: 0 almost none, 9 "
           "nearly all.";
  }
  std::string scale;
  for (int digit = 0; digit < 10; ++digit) {
    scale += shaded(fmt::format(" {}%", digit * 10), digit / 10.0 + 0.05);
  }
  return "Share of heads that kept the word:" + scale;
}

}  // namespace ctxzip::cli
