// Flags that several commands share.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "ctxzip/model.h"
#include "ctxzip/session.h"
#include "ctxzip/zip.h"

namespace ctxzip::cli {

// --json and --verbose; every command has them.
struct OutputOptions {
  bool json = false;
};
void add_output_options(CLI::App& app, OutputOptions& options,
                        const std::string& fields = "docs/cli.md");

// The positional FILE.ctz, to be made required by the caller where it is.
CLI::Option* add_ctz_file(CLI::App& app, std::string& file);

// -m and --threads.
struct ModelFlags {
  std::optional<std::string> model;
  ModelOptions load;
};
void add_model_options(CLI::App& app, ModelFlags& flags, const std::string& default_model);

// --allocation
CLI::Option* add_allocation_flag(CLI::App& app, Allocation& allocation);

// --kv f16|q8|q4
CLI::Option* add_kv_flag(CLI::App& app, KvType& kv, const std::string& help);
// --heads FILE
CLI::Option* add_heads_flag(CLI::App& app, std::string& file);
// Null for an empty name. Throws Error: kNotFound, kIo, kCorruptFile.
std::shared_ptr<const HeadScores> read_heads(const std::string& file);

// --max-tokens, --stop, --temp and the other flags of generation.
void add_answer_options(CLI::App& app, AskOptions& options);

}  // namespace ctxzip::cli
