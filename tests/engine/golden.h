// Golden vectors that tools/golden_*.py made.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/keep_set.h"
#include "score/kvzip.h"

namespace ctxzip::test {

nlohmann::json read_golden(const std::string& name);

// Bits ordered (layer, kv_head, position), least significant first, each head padded to a byte.
KeepSet decode_bitmap(const std::string& base64, int64_t n_layer, int64_t n_kv_head,
                      int64_t n_context);

// A golden file of a tiny model: token ids without a tokenizer.
struct Golden {
  nlohmann::json json;
  std::vector<Token> prefix, context;
};
Golden load_golden(const std::string& name);

// (layer, kv_head, position)
Scores golden_scores(const nlohmann::json& json);

// Runs the golden file's own passes, so that its prompts are used.
Scores run_golden_passes(const Model& model, const Golden& golden, ReconAttention attention,
                         ReconScore kind = ReconScore::kSoftmax);

// Within the tolerance of single precision.
void expect_close(const Scores& expected, const Scores& found);
// The same pairs are kept, apart from those whose expected score is near the threshold.
void expect_same_choice(const Scores& expected, const Scores& found, double ratio);

// Share of `expected` that `found` has too.
double overlap(const KeepSet& expected, const KeepSet& found);

}  // namespace ctxzip::test
