// Recall policies by name, as experiments take them.
#pragma once

#include <optional>
#include <string_view>

#include "ctxzip/recall.h"

namespace ctxzip::eval {

constexpr const char* kRecallNames =
    "recall, recall-N (sketch rank N, a multiple of 8), recall-topN (N rows at most for a head), "
    "recall-sound, evicted (no recall)";

// Nothing for a name that is none of kRecallNames.
std::optional<RecallOptions> find_policy(std::string_view name);

}  // namespace ctxzip::eval
