// The texts that ctxzip itself says to a model.
#pragma once

#include "model/tokenizer.h"
#include "score/kvzip.h"

namespace ctxzip {

// The paper's instruction to repeat the context, or what its appendix puts in its place.
RepeatPrompts repeat_prompts(const Tokenizer& tokenizer, const PromptLayout& layout,
                             RepeatWording wording = RepeatWording::kDefault);
// The same wish in other words: held-out probes of the self-check.
RepeatPrompts paraphrased_prompts(const Tokenizer& tokenizer, const PromptLayout& layout);
// Before the first half of a sentence whose second half is asked for.
std::vector<Token> cloze_prompt(const Tokenizer& tokenizer);

}  // namespace ctxzip
