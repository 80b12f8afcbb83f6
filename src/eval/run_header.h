// The first line of a run's log: everything that is needed to run it again.
#pragma once

#include <string>

#include "ctxzip/model.h"
#include "eval/runner.h"

namespace ctxzip::eval {

// `data_path` is empty for generated contexts. Holds no folder of this machine. Throws Error: kIo.
Json run_header(const Model& model, const EvalRun& run, const std::string& data_path);

}  // namespace ctxzip::eval
