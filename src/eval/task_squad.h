// Data files in SQuAD's format, which more than one task reads.
#pragma once

#include <string>

#include "eval/task.h"

namespace ctxzip::eval {

// Versions 1.1 and 2.0. Throws Error: kNotFound, kIo, kCorruptFile.
TaskData read_squad(const std::string& path);

}  // namespace ctxzip::eval
