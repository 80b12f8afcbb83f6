// The words of a document with how much of the cache remembers each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ctxzip/context.h"

namespace ctxzip::cli {

struct Word {
  std::string text;       // with the blanks before it; all words together are the document
  double kept_share = 0;  // mean over its tokens, 0..1
};

// Tokens grouped into words: a new one starts after blanks, and at each character of scripts that
// are written without them.
std::vector<Word> words_of(const Context& context);

// The document with a mark for each word's share in tenths: shades of grey when `colour`, else a
// raised digit (0 to 9) after it.
std::string marked_text(std::span<const Word> words, bool colour);
// One line that explains the marks.
std::string marks_legend(bool colour);

}  // namespace ctxzip::cli
