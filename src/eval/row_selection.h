// Selections that the needle experiment compares: what ranks the rows of a head, before any query
// is known, and how a budget is used. Latent rows are one head a layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/keep_set.h"
#include "engine/zipper.h"

namespace ctxzip::eval {

struct RowSelection {
  Method scores = Method::kSigma;
  // Sigma of the first so many principal directions of the branch or key; 0: of all.
  int64_t principal = 0;
  bool half_recent = false;  // half of the budget goes to the newest rows
};

// "sigma", "sigma-4" (so many principal directions), "sigma-row", "sigma-content", "h2o",
// "h2o-recent", "snapkv", "streaming-llm", "random"; nothing for another name.
std::optional<RowSelection> find_selection(std::string_view name);
constexpr const char* kSelectionNames =
    "full, sigma, sigma-N (N principal directions), sigma-row, sigma-content, h2o, h2o-recent, "
    "snapkv, "
    "streaming-llm, random";

// Rows (layer, kv_head) that a budget of max(1, round(ratio x rows)) and four sinks keeps of every
// head. `zipper` has prefilled a text, whether its rows are rotated or not. Throws Error:
// kInvalidArgument (more directions than dimensions), kUnsupported (a part that keys do not have).
KeepSet select_layer_rows(const detail::ModelState& model, Zipper& zipper,
                          const RowSelection& selection, double ratio, int64_t block_rows);

}  // namespace ctxzip::eval
