// What is settled before a zip computes anything.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/keep_set.h"
#include "cache/kv_shape.h"
#include "ctxzip/zip.h"
#include "model/model_state.h"
#include "score/scores.h"

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

// Bytes of a kept pair for budgets; of quantised rows with their share of scales, the padding of a
// head's last strip left out.
int64_t pair_bytes(const KvShape& shape, const ZipOptions& options);
// The n_keep best pairs; for a size budget as many fewer as the stored rows, padding included,
// exceed it. `full`: shape of the rows before they are stored.
KeepSet select_for_budget(const Scores& scores, int64_t n_keep, const KvShape& full,
                          int64_t n_prefix, int64_t window_bytes, const ZipOptions& options,
                          Allocation allocation);
// The type that kept rows are stored as; absent: as they were computed.
std::optional<RowType> stored_type(const ZipOptions& options);

// Contexts below this are kept whole.
constexpr int64_t kShortestCompressed = 32;

// Throws Error: kInvalidArgument (options, empty text), kTooLong.
ZipPlan plan_zip(const detail::ModelState& model, std::string_view text, const ZipOptions& options);
// For token ids that need no tokenizer.
ZipPlan plan_zip(const detail::ModelState& model, PromptLayout layout, std::vector<Token> context,
                 const ZipOptions& options);

}  // namespace ctxzip
