// Makes an edited .ctz file's checksums right again, so that what lies behind them is reached.
#pragma once

#include <cstddef>
#include <span>

namespace ctxzip {

// Rewrites the checksums in place, as far as `bytes` can be parsed.
void reseal(std::span<std::byte> bytes);

}  // namespace ctxzip
