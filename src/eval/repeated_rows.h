// Contexts whose rows are copies: decoding after them takes as long as after a whole prefill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/dense_cache.h"
#include "ctxzip/model.h"
#include "ctxzip/session.h"
#include "engine/zip_plan.h"

namespace ctxzip::eval {

// The positions of a plan, of which only the first `n_first` were prefilled; the others hold their
// rows again, in turn. For measuring speed only. Not thread-safe.
class RepeatedRows {
 public:
  // Throws Error: kUnsupported where a layer does not keep every row, kOutOfMemory, kCancelled.
  RepeatedRows(const Model& model, ZipPlan plan, const ZipOptions& options, int64_t n_first);

  // With `ratio` of the pairs, chosen at random, so that heads differ in length.
  Context copy(double ratio) const;

 private:
  Model model_;
  ZipPlan plan_;
  ZipOptions options_;
  DenseCache full_;
};

// The same for llama.cpp: what llama_state_seq_set_data takes for n_cells positions, made from what
// llama_state_seq_get_data said of fewer. Throws Error{kUnsupported} if `state` is not that of one
// cache with one row a position.
std::vector<std::byte> repeated_llama_state(std::span<const std::byte> state, int64_t n_cells);

}  // namespace ctxzip::eval
