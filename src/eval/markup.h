// Text inside XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace ctxzip::eval {

// Also inside quoted attributes. Control characters that XML forbids are dropped.
std::string escaped(std::string_view text);

}  // namespace ctxzip::eval
