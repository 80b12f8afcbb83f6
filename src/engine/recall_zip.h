// Contexts under VestigeKV from token ids.
#pragma once

#include <vector>

#include "ctxzip/stream.h"
#include "engine/recall_stream.h"
#include "model/tokenizer.h"

namespace ctxzip {

// As the public zip_stream(), for token ids that need no tokenizer; `context` may be empty.
Context zip_stream(const Model& model, const PromptLayout& layout,
                   const std::vector<Token>& context, const StreamOptions& options);

// What a stream holds now as a context: the tokens that were fed are the layout's prefix and
// `context`.
Context freeze(const RecallStream& stream, const Model& model, const PromptLayout& layout,
               const std::vector<Token>& context, const StreamOptions& options,
               double prefill_s = 0);

}  // namespace ctxzip
