// The text of a zip, from files and standard input.
#pragma once

#include <string>
#include <vector>

namespace ctxzip::cli {

// The files in order ("-": standard input), an empty line between two of them. Throws Error:
// kNotFound, kIo, kUnsupported (nothing but blanks, or a GGUF or .ctz file instead of a text).
std::string read_texts(const std::vector<std::string>& paths);

// The lines of standard input that are not blank, without line ends.
std::vector<std::string> read_question_lines();

}  // namespace ctxzip::cli
