// The last step of every schedule: rows, what is known of them, and how long it took.
#pragma once

#include <optional>

#include "engine/context_state.h"
#include "engine/self_check.h"
#include "engine/zip_plan.h"

namespace ctxzip {

// What a run took.
struct RunFigures {
  double prefill = 0;  // seconds, like the next three
  double score = 0;
  double check = 0;
  double compact = 0;
  int64_t peak_kv_bytes = 0;  // rows of the text that were held at once
};

// What a context says of its model and prompt; how rows were chosen is left open.
CtzMeta describe_prompt(const detail::ModelState& model, const PromptLayout& layout,
                        const std::vector<Token>& context);

// `loss`: change of the self-check's figures, where it ran. A large one is noticed.
Context make_context(const Model& model, const ZipPlan& plan, const ZipOptions& options,
                     ContextRows rows, const std::optional<SelfCheck>& loss,
                     const RunFigures& figures);

}  // namespace ctxzip
