// What is settled before a zip computes anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ctxzip/zip.h"
#include "model/model_state.h"
#include "select/select.h"

namespace ctxzip {

// A tokenised document with its prompt layout, and how it will be scored.
struct ZipPlan {
  PromptLayout layout;
  std::vector<Token> context;
  int64_t chunk_tokens = 0;  // may be shorter than asked, to fit the trained length
  bool too_short = false;    // kept whole: there is nothing to gain

  int64_t n_prefix() const { return static_cast<int64_t>(layout.prefix.size()); }
  int64_t n_context() const { return static_cast<int64_t>(context.size()); }
  int64_t n_positions() const { return n_prefix() + n_context(); }
};

// The type that kept rows are stored as; absent: as they were computed.
std::optional<RowType> stored_type(KvType kv);

// What the budget of a planned zip is measured against.
ContextSize context_size(const detail::ModelState& model, const ZipPlan& plan,
                         const ZipOptions& options);

// Throws Error{kUnsupported} for a method that this model's rows do not allow.
void check_method(const detail::ModelState& model, Method method);

// Contexts below this are kept whole.
constexpr int64_t kShortestCompressed = 32;

// Throws Error: kInvalidArgument (options, empty text), kTooLong.
ZipPlan plan_zip(const detail::ModelState& model, std::string_view text, const ZipOptions& options);
// For token ids that need no tokenizer.
ZipPlan plan_zip(const detail::ModelState& model, PromptLayout layout, std::vector<Token> context,
                 const ZipOptions& options);

}  // namespace ctxzip
