// From what a person typed, or from a .ctz, to a loaded model.
#pragma once

#include <optional>
#include <string>

#include "ctxzip/context.h"
#include "ctxzip/model.h"

namespace ctxzip::cli {

// The path for -m: a catalogue name, else a path; nothing given means the default model. Throws
// Error{kNotFound} that says how to get the model.
std::string model_path(const std::optional<std::string>& given);

// The catalogue's name of an installed model, else its own.
std::string model_label(const ModelInfo& info);

// Model::load, remembered in the index.
Model load_model(const std::string& path, const ModelOptions& options = {});

// Opens a .ctz with the model of -m, else with the known or installed model of its fingerprint.
// Throws Error as Context::open does, and kNotFound that names the model needed.
Context open_context(const std::string& ctz_path, const std::optional<std::string>& given_model,
                     const ModelOptions& options = {});

}  // namespace ctxzip::cli
