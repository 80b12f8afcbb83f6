// The commands of the program. A new command is one file with its `add_` function, declared here
// and listed once in command_table.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <span>

namespace ctxzip::cli {

// Runs a parsed command and returns the exit code. Throws Error for operations that fail and
// CLI::ParseError for flags that only turn out wrong once the command runs.
using Run = std::function<int()>;

struct Command {
  const char* name;
  const char* summary;
  // Declares arguments, flags and examples on `app`, which outlives the returned function.
  Run (*add)(CLI::App& app);
};

// In the order of --help.
std::span<const Command> commands();

Run add_zip(CLI::App& app);
Run add_ask(CLI::App& app);
Run add_chat(CLI::App& app);
Run add_inspect(CLI::App& app);
Run add_text(CLI::App& app);
Run add_eval(CLI::App& app);
Run add_analyze(CLI::App& app);
Run add_heads(CLI::App& app);
Run add_report(CLI::App& app);
Run add_bench(CLI::App& app);
Run add_model(CLI::App& app);

}  // namespace ctxzip::cli
