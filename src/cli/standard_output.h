// Results go to standard output, everything else (notes, progress, errors) to standard error.
#pragma once

#include <string_view>

namespace ctxzip::cli {

// Written as they are, in order, buffered.
void print_out(std::string_view text);
// Throws Error{kIo} if anything printed so far did not arrive (a full disk).
void flush_out();

// "note: ..." on standard error.
void print_note(std::string_view text);

}  // namespace ctxzip::cli
