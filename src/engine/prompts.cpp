#include "engine/prompts.h"

namespace ctxzip {
namespace {

RepeatPrompts encode(const Tokenizer& tokenizer, const PromptLayout& layout, const char* first,
                     const char* later) {
  if (!tokenizer.has_text()) return {};
  return {.first = tokenizer.encode_plain(first),
          .later = tokenizer.encode_plain(later),
          .turn = layout.turn};
}

}  // namespace

RepeatPrompts repeat_prompts(const Tokenizer& tokenizer, const PromptLayout& layout,
                             RepeatWording wording) {
  if (wording == RepeatWording::kBlank) return encode(tokenizer, layout, "\n\n", "\n\n");
  if (wording == RepeatWording::kParaphrase) {
    return encode(tokenizer, layout, "\n\nReproduce the preceding context without any changes.",
                  "\n\nReproduce the preceding context without any changes, starting with");
  }
  return encode(tokenizer, layout, "\n\nRepeat the previous context exactly.",
                "\n\nRepeat the part of the previous context exactly, starting with");
}

RepeatPrompts paraphrased_prompts(const Tokenizer& tokenizer, const PromptLayout& layout) {
  return encode(tokenizer, layout, "\n\nWrite out the text above once more, word for word.",
                "\n\nQuote the text above word for word. Continue after these words:");
}

std::vector<Token> cloze_prompt(const Tokenizer& tokenizer) {
  if (!tokenizer.has_text()) return {};
  return tokenizer.encode_plain("\n\nHow does this sentence of the text above go on?");
}

}  // namespace ctxzip
