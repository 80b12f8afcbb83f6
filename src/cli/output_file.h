// Files that a command will write at its end.
#pragma once

#include <string>

namespace ctxzip::cli {

// Finds out before the work what would stop `path` from being written: it is a folder or a device,
// or its folder is missing or closed. Throws Error: kIo, kNotFound.
void check_output_file(const std::string& path);

}  // namespace ctxzip::cli
