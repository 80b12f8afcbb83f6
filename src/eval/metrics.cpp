#include "eval/metrics.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "core/utf8.h"

namespace ctxzip::eval {
namespace {

// Takes the first character off well-formed UTF-8.
char32_t next_character(std::string_view& text) {
  const auto byte = [&](size_t at) { return static_cast<uint8_t>(text[at]); };
  const uint8_t lead = byte(0);
  const size_t length = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  char32_t character = length == 1 ? lead : lead & (0x7fu >> length);
  for (size_t at = 1; at < length; ++at) character = character << 6 | (byte(at) & 0x3fu);
  text.remove_prefix(length);
  return character;
}

void append(std::string& text, char32_t c) {
  const auto put = [&](char32_t bits) { text += static_cast<char>(bits); };
  const auto put_rest = [&](int n_bytes) {
    while (n_bytes-- > 0) put(0x80 | (c >> (6 * n_bytes) & 0x3f));
  };
  if (c < 0x80) return put(c);
  if (c < 0x800) {
    put(0xc0 | c >> 6);
    return put_rest(1);
  }
  if (c < 0x10000) {
    put(0xe0 | c >> 12);
    return put_rest(2);
  }
  put(0xf0 | c >> 18);
  put_rest(3);
}

bool between(char32_t c, char32_t first, char32_t last) { return first <= c && c <= last; }

// Of the alphabets with case that texts in European languages use.
char32_t lower(char32_t c) {
  if (between(c, 'A', 'Z')) return c + 32;
  if (between(c, 0xc0, 0xde) && c != 0xd7) return c + 32;
  if (between(c, 0x100, 0x137) || between(c, 0x14a, 0x177)) return c | 1;
  if (between(c, 0x139, 0x148) || between(c, 0x179, 0x17e)) return c + (c & 1);
  if (c == 0x178) return 0xff;
  if (between(c, 0x391, 0x3ab)) return c + 32;
  if (between(c, 0x410, 0x42f)) return c + 32;
  if (between(c, 0x400, 0x40f)) return c + 80;
  if (between(c, 0x1e00, 0x1eff)) return between(c, 0x1e96, 0x1e9f) ? c : c | 1;
  return c;
}

bool is_ascii_punctuation(char32_t c) {
  return between(c, '!', '/') || between(c, ':', '@') || between(c, '[', '`') ||
         between(c, '{', '~');
}

bool is_space(char32_t c) {
  return between(c, 0x09, 0x0d) || between(c, 0x1c, 0x20) || c == 0x85 || c == 0xa0 ||
         c == 0x1680 || between(c, 0x2000, 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
         c == 0x205f || c == 0x3000;
}

// Non-ASCII marks that end a word: an article beside one is still an article.
bool is_mark(char32_t c) {
  if (between(c, 0xa1, 0xbf)) {
    const std::u32string_view alphanumeric =
        U"\u00aa\u00b2\u00b3\u00b5\u00b9\u00ba\u00bc\u00bd\u00be";
    return alphanumeric.find(c) == std::u32string_view::npos;
  }
  return c == 0xd7 || c == 0xf7 || between(c, 0x2010, 0x2027) || between(c, 0x2030, 0x205e) ||
         between(c, 0x20a0, 0x20cf) || between(c, 0x2190, 0x23ff) || between(c, 0x3001, 0x3003) ||
         between(c, 0x3008, 0x3020);
}

// Collects words, leaving out articles. Marks bound an article but not a word: "\u201cthe cat" is
// "\u201c" and "cat", "\u201ccat" is one word.
class WordCollector {
 public:
  void letter(char32_t c) { append(run_, c); }
  void mark(char32_t c) {
    end_run();
    append(word_, c);
  }
  void space() {
    end_run();
    end_word();
  }
  std::vector<std::string> words() {
    space();
    return std::move(words_);
  }

 private:
  void end_run() {
    if (run_ == "a" || run_ == "an" || run_ == "the") {
      end_word();
    } else {
      word_ += run_;
    }
    run_.clear();
  }
  void end_word() {
    if (!word_.empty()) words_.push_back(std::move(word_));
    word_.clear();
  }

  std::string run_;   // letters since the last mark or space
  std::string word_;  // before that, since the last space
  std::vector<std::string> words_;
};

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

double f1(const std::vector<std::string>& output, const std::vector<std::string>& answer) {
  if (output.empty() || answer.empty()) return output.empty() == answer.empty() ? 1 : 0;
  std::map<std::string_view, int64_t> left;
  for (const std::string& word : answer) ++left[word];
  int64_t n_common = 0;
  for (const std::string& word : output) {
    const auto found = left.find(word);
    if (found == left.end() || found->second == 0) continue;
    --found->second;
    ++n_common;
  }
  return 2.0 * static_cast<double>(n_common) / static_cast<double>(output.size() + answer.size());
}

// The best of `score(answer)`; no answers at all score 0.
template <typename Score>
double best(std::span<const std::string> answers, Score score) {
  double best = 0;
  for (const std::string& answer : answers)
    best = std::max(best, static_cast<double>(score(answer)));
  return best;
}

}  // namespace

std::vector<std::string> answer_words(std::string_view text) {
  const std::string repaired = repair_utf8(text);
  WordCollector collector;
  for (std::string_view rest = repaired; !rest.empty();) {
    const char32_t c = lower(next_character(rest));
    if (is_ascii_punctuation(c)) continue;
    if (is_space(c)) {
      collector.space();
    } else if (is_mark(c)) {
      collector.mark(c);
    } else {
      collector.letter(c);
    }
  }
  return collector.words();
}

std::string normalise_answer(std::string_view text) { return join(answer_words(text)); }

double substring_match(std::string_view output, std::span<const std::string> answers) {
  const std::string normalised = normalise_answer(output);
  return best(answers, [&](const std::string& answer) {
    const std::string wanted = normalise_answer(answer);
    return wanted.empty() ? normalised.empty() : normalised.find(wanted) != std::string::npos;
  });
}

double exact_match(std::string_view output, std::span<const std::string> answers) {
  const std::string normalised = normalise_answer(output);
  return best(answers,
              [&](const std::string& answer) { return normalise_answer(answer) == normalised; });
}

double token_f1(std::string_view output, std::span<const std::string> answers) {
  const std::vector<std::string> words = answer_words(output);
  return best(answers, [&](const std::string& answer) { return f1(words, answer_words(answer)); });
}

double f1_or_substring(std::string_view output, std::span<const std::string> answers) {
  return std::max(token_f1(output, answers), substring_match(output, answers));
}

}  // namespace ctxzip::eval
