// Counts what operator new hands out in this test program.
#pragma once

#include <cstddef>

namespace ctxzip {

// Bytes requested from operator new so far, frees not subtracted.
size_t allocated_bytes();

}  // namespace ctxzip
