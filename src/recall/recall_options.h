// Limits of a VestigeKV cache; its settings are public (ctxzip/recall.h).
#pragma once

#include <cstdint>

#include "ctxzip/recall.h"

namespace ctxzip {

constexpr int64_t kMaxRecallHeads = 256;
// close_now() leaves shorter tails open.
constexpr int64_t kMinClosedRows = 64;

}  // namespace ctxzip
