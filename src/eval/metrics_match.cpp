// Matches of parts of an output: texts, numbers, letters of options.
#include <algorithm>
#include <cstdlib>
#include <optional>

#include "eval/metrics.h"

namespace ctxzip::eval {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
// Bytes of other alphabets are parts of words too.
bool is_word(char c) {
  return is_digit(c) || is_upper(c) || is_lower(c) || static_cast<unsigned char>(c) >= 0x80;
}

std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (is_upper(c)) c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

size_t count_digits(std::string_view text, size_t at) {
  size_t n = 0;
  while (at + n < text.size() && is_digit(text[at + n])) ++n;
  return n;
}

// Takes the number that starts at `at`, a digit, and moves `at` behind it. A comma belongs to it
// when exactly three digits follow.
double take_number(std::string_view text, size_t& at) {
  const bool negative =
      at > 0 && text[at - 1] == '-' && (at == 1 || (!is_word(text[at - 2]) && text[at - 2] != ')'));
  std::string digits;
  const auto take = [&](size_t n) {
    digits += text.substr(at, n);
    at += n;
  };
  take(count_digits(text, at));
  while (digits.size() >= 1 && at < text.size() && text[at] == ',' &&
         count_digits(text, at + 1) == 3) {
    ++at;
    take(3);
  }
  if (at < text.size() && text[at] == '.' && count_digits(text, at + 1) > 0) {
    digits += '.';
    ++at;
    take(count_digits(text, at));
  }
  const double value = std::strtod(digits.c_str(), nullptr);
  return negative ? -value : value;
}

std::vector<double> numbers(std::string_view text) {
  std::vector<double> all;
  for (size_t at = 0; at < text.size();) {
    if (is_digit(text[at])) {
      all.push_back(take_number(text, at));
    } else {
      ++at;
    }
  }
  return all;
}

bool is_number(double number, std::span<const std::string> answers) {
  return std::any_of(answers.begin(), answers.end(), [&](const std::string& answer) {
    const std::vector<double> wanted = numbers(answer);
    return !wanted.empty() && wanted.back() == number;
  });
}

// The first capital letter from `from` that stands alone; the article "A" and "I" do not count.
std::optional<char> lone_letter(std::string_view text, size_t from) {
  for (size_t at = from; at < text.size(); ++at) {
    if (!is_upper(text[at])) continue;
    if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == '\'')) continue;
    const std::string_view after = text.substr(at + 1);
    if (!after.empty() && (is_word(after[0]) || after[0] == '\'')) continue;
    const bool opened = at > 0 && text[at - 1] == '(';
    const bool before_word =
        after.size() > 1 && after[0] == ' ' && (is_lower(after[1]) || is_digit(after[1]));
    if ((text[at] == 'A' || text[at] == 'I') && before_word && !opened) continue;
    return text[at];
  }
  return std::nullopt;
}

std::optional<char> chosen_letter(std::string_view output) {
  const std::string low = lowered(output);
  for (const std::string_view lead : {"answer is", "answer:", "option is", "choice is"}) {
    const size_t at = low.find(lead);
    if (at == std::string::npos) continue;
    if (const auto letter = lone_letter(output, at + lead.size())) return letter;
  }
  return lone_letter(output, 0);
}

}  // namespace

double contains_any(std::string_view output, std::span<const std::string> answers) {
  const std::string low = lowered(output);
  return std::any_of(answers.begin(), answers.end(), [&](const std::string& answer) {
    return low.find(lowered(answer)) != std::string::npos;
  });
}

double contains_all(std::string_view output, std::span<const std::string> answers) {
  if (answers.empty()) return 0;
  const std::string low = lowered(output);
  const auto n = std::count_if(answers.begin(), answers.end(), [&](const std::string& answer) {
    return low.find(lowered(answer)) != std::string::npos;
  });
  return static_cast<double>(n) / static_cast<double>(answers.size());
}

double first_number_match(std::string_view output, std::span<const std::string> answers) {
  const std::vector<double> found = numbers(output);
  return !found.empty() && is_number(found.front(), answers);
}

double last_number_match(std::string_view output, std::span<const std::string> answers) {
  const std::vector<double> found = numbers(output);
  return !found.empty() && is_number(found.back(), answers);
}

double choice_match(std::string_view output, std::span<const std::string> answers) {
  if (answers.empty()) return 0;
  if (const auto letter = chosen_letter(output)) return answers[0] == std::string(1, *letter);
  return answers.size() > 1 ? substring_match(output, answers.subspan(1)) : 0;
}

}  // namespace ctxzip::eval
