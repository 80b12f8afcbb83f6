#include "cli/model_locator.h"

#include <algorithm>
#include <filesystem>

#include "cli/model_catalogue.h"
#include "cli/model_index.h"
#include "core/fail.h"

namespace ctxzip::cli {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored) && !fs::is_directory(path, ignored);
}

// Loads what is at `path`; nothing if it is not the model of that fingerprint.
std::optional<Model> load_if(const std::string& path, const std::string& fingerprint,
                             const ModelOptions& options) {
  if (path.empty() || !is_file(path)) return std::nullopt;
  try {
    Model model = load_model(path, options);
    if (model.info().fingerprint == fingerprint) return model;
  } catch (const Error& error) {
    // Another file took its place, or a model of the catalogue that this version cannot load.
    if (error.kind() == ErrorKind::kOutOfMemory) throw;
  }
  return std::nullopt;
}

// Where models are or were: those of the catalogue, then those used by path. What the index says of
// a path may be out of date, so nothing is left out.
std::vector<std::string> model_places() {
  std::vector<std::string> paths;
  for (const CatalogueModel& entry : catalogue()) {
    if (entry.installed()) paths.push_back(entry.path().string());
  }
  for (const KnownModel& known : known_models()) {
    if (std::find(paths.begin(), paths.end(), known.path) == paths.end())
      paths.push_back(known.path);
  }
  return paths;
}

// The model of that fingerprint: where the index has it, else wherever there are models.
std::optional<Model> find_model(const std::string& fingerprint, const ModelOptions& options) {
  if (const auto known = known_model(fingerprint)) {
    if (auto model = load_if(known->path, fingerprint, options)) return model;
  }
  // Mapped, not repacked, until it is the right one.
  ModelOptions mapped = options;
  mapped.repack = false;
  for (const std::string& path : model_places()) {
    if (load_if(path, fingerprint, mapped)) return load_if(path, fingerprint, options);
  }
  return std::nullopt;
}

[[noreturn]] void fail_without_model(const std::string& ctz_path, const FileInfo& info) {
  std::string advice = "give its GGUF file with -m";
  for (const CatalogueModel& entry : catalogue()) {
    if (entry.gguf_name == info.model_name && !entry.installed()) {
      advice += fmt::format(", or run `ctxzip model fetch {}`", entry.name);
    }
  }
  fail(ErrorKind::kNotFound,
       "{}: was made with the {} model '{}' (fingerprint {}), which was not found here: {}",
       ctz_path, info.architecture, info.model_name, info.model_fingerprint, advice);
}

}  // namespace

std::string model_path(const std::optional<std::string>& given) {
  const CatalogueModel* const entry = given ? find_in_catalogue(*given) : &default_model();
  if (entry != nullptr) {
    if (!entry->installed() && entry->with_source()) {
      fail(ErrorKind::kNotFound,
           "model {} comes with ctxzip's source code, but {} is not there: give its file with -m",
           entry->name, entry->path().string());
    }
    if (!entry->installed()) {
      fail(ErrorKind::kNotFound, "the {}model {} is not installed: run `ctxzip model fetch {}`{}",
           given ? "" : "default ", entry->name, entry->name,
           given ? "" : ", or give a GGUF file with -m");
    }
    return entry->path().string();
  }
  if (!is_file(*given)) {
    fail(ErrorKind::kNotFound, "{}: no such file, and no name of the catalogue ({})", *given,
         catalogue_names());
  }
  return *given;
}

std::string model_label(const ModelInfo& info) {
  for (const CatalogueModel& entry : catalogue()) {
    if (entry.path() == info.path) return std::string(entry.name);
  }
  return info.name;
}

Model load_model(const std::string& path, const ModelOptions& options) {
  Model model = Model::load(path, options);
  remember_model(model.info());
  return model;
}

Context open_context(const std::string& ctz_path, const std::optional<std::string>& given_model,
                     const ModelOptions& options) {
  if (given_model) return Context::open(load_model(model_path(given_model), options), ctz_path);
  const FileInfo info = inspect_file(ctz_path);
  const auto model = find_model(info.model_fingerprint, options);
  if (!model) fail_without_model(ctz_path, info);
  return Context::open(*model, ctz_path);
}

}  // namespace ctxzip::cli
