// Texts of token ids with key-value needles, in the made-up language that the models of
// models/vestige were trained on (tools/vestige/language.py).
//
//   SET key value value    a needle        NOTE key value value   a distractor, never asked
//   GET key value value    a query with its answer, after the text
//
// Words follow each other with chances of a fixed table. Keys and values are words of the text like
// any other; half of the distractors repeat a needle's key with other values.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "ctxzip/model.h"
#include "eval/draw.h"

namespace ctxzip::eval {

constexpr int64_t kNeedleVocabulary = 256;
constexpr Token kSetMark = 1;
constexpr Token kNoteMark = 2;
constexpr Token kGetMark = 3;
constexpr Token kFirstWord = 4;  // words are [kFirstWord, kNeedleVocabulary)
constexpr int64_t kItemTokens = 4;
constexpr int64_t kGivenTokens = 2;  // of a query; its answer is the rest
constexpr int64_t kSuccessors = 8;

// What usually comes after a word, the likeliest first (chances 1/rank; one word in ten is any).
std::array<Token, kSuccessors> successors(Token word);

struct NeedleTextOptions {
  int64_t n_tokens = 2048;  // of the text, without queries
  int64_t n_needles = 8;
  int64_t n_distractors = 8;
  int64_t block_rows = 512;  // some needles lie at the edges of blocks of so many tokens
};

struct Needle {
  std::array<Token, kItemTokens> query = {};  // GET key value value
  int64_t first = 0;                          // token of the text where its SET is
  std::string place;                          // "block start", "block end", "pair", "anywhere"
};

struct NeedleText {
  std::vector<Token> tokens;
  std::vector<Needle> needles;  // in the order in which they are asked
};

// The first needle lies in the first 16 tokens of a block, the second in the last 16, the next two
// back to back, all others at depths spread over the text. Throws Error{kInvalidArgument} when they
// have no room.
NeedleText make_needle_text(const NeedleTextOptions& options, Draw& draw);

}  // namespace ctxzip::eval
