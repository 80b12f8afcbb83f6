// Words that generated contexts are made of.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/draw.h"

namespace ctxzip::eval {

using WordList = std::span<const char* const>;

WordList nouns();  // things, singular, without articles
WordList adjectives();
WordList towns();   // made up
WordList people();  // full names, made up

// "amber-lantern".
std::string word_pair(Draw& draw);
// Made-up words of three syllables; seven digits; a random UUID in lower case.
std::string coined_word(Draw& draw);
std::string seven_digits(Draw& draw);
std::string uuid(Draw& draw);

// n different results of `make`.
std::vector<std::string> distinct(size_t n, Draw& draw, std::string (*make)(Draw&));

}  // namespace ctxzip::eval
