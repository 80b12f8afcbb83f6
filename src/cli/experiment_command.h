// `ctxzip eval vestige-...`: experiments on what is left of a cache.
#pragma once

#include "cli/command.h"
#include "eval/experiment.h"

namespace ctxzip::cli {

// Declares one experiment's flags on its subcommand; `experiment` outlives the returned function.
Run add_experiment(CLI::App& app, const eval::Experiment& experiment);

}  // namespace ctxzip::cli
