// A text for measurements that need any text at all.
#pragma once

#include <string>

namespace ctxzip::eval {

// About 10,000 tokens of varied sentences with a fact in each: nothing that a cache could drop
// unnoticed.
std::string sample_text();

}  // namespace ctxzip::eval
