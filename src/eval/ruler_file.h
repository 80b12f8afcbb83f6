// RULER's data files.
#pragma once

#include <string>

#include "eval/task.h"

namespace ctxzip::eval {

constexpr const char* kRulerFormat =
    "RULER JSONL: {\"input\", \"outputs\"} or {\"context\", \"question\", \"answer\"} on each line";

// RULER's own files hold one prompt; its last question becomes the question, what stands before it
// the context. Throws Error: kNotFound, kIo, kCorruptFile, kInvalidArgument (options of a
// generator).
TaskData read_ruler(const DataRequest& request);

}  // namespace ctxzip::eval
