#include "engine/turn.h"

#include "core/fail.h"
#include "core/utf8.h"

namespace ctxzip {

std::vector<Token> turn_prompt(const detail::ContextState& context, std::string_view text,
                               bool later_turn, bool think) {
  const CtzMeta& meta = context.meta;
  const Tokenizer& tokenizer = context.model.state()->tokenizer;
  std::vector<Token> tokens = later_turn ? meta.next_turn_tokens : meta.question_tokens;
  if (tokenizer.has_text()) {
    const auto words = tokenizer.encode_plain(repair_utf8(text));
    tokens.insert(tokens.end(), words.begin(), words.end());
  }
  // The stored turn is rendered without thinking; asking for it is the one reason to render anew.
  const auto turn = think ? tokenizer.layout(std::nullopt, true).turn : meta.turn_tokens;
  tokens.insert(tokens.end(), turn.begin(), turn.end());
  if (tokens.empty())
    fail(ErrorKind::kInvalidArgument, "the question is empty and the model has no template");
  return tokens;
}

void check_room(const Turns& turns, const std::vector<Token>& prompt) {
  const int64_t room = turns.room();
  const auto n_prompt = static_cast<int64_t>(prompt.size());
  if (n_prompt > room) {
    fail(ErrorKind::kTooLong,
         "the prompt has {} tokens, but only {} fit after the context and {} tokens of turns",
         n_prompt, room, turns.n_rows());
  }
}

}  // namespace ctxzip
