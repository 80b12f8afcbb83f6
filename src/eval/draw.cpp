#include "eval/draw.h"

#include <span>

#include "core/hash.h"

namespace ctxzip::eval {

Draw::Draw(uint64_t seed, std::string_view purpose)
    : random_(hash64(std::as_bytes(std::span(purpose.data(), purpose.size())), seed)) {}

}  // namespace ctxzip::eval
