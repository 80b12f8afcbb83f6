// Golden vectors that tools/golden_kvzip.py and tools/golden_smollm2.py made.
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

// Share of `expected` that `found` has too.
double overlap(const KeepSet& expected, const KeepSet& found);

}  // namespace ctxzip::test
