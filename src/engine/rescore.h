// The scores behind a finished context.
#pragma once

#include "ctxzip/context.h"
#include "ctxzip/progress.h"
#include "score/scores.h"

namespace ctxzip {

// Computes the scores that decided what `context` kept again, from its tokens: a prefill and a
// scoring pass. A file does not hold them. Throws Error: kUnsupported (a context that was cut chunk
// by chunk, kept by head scores or kept whole: nothing scored its pairs all at once),
// kOutOfMemory, kCancelled.
Scores rescore(const Context& context, const ProgressFn& progress = {},
               const CancelToken* cancel = nullptr);

}  // namespace ctxzip
