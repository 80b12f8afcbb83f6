#include "cli/model_index.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "cli/cache_folder.h"
#include "cli/json_output.h"
#include "ctxzip/error.h"

namespace ctxzip::cli {
namespace {

namespace fs = std::filesystem;

std::vector<KnownModel> read_index() {
  std::vector<KnownModel> models;
  std::ifstream in(cache_folder() / "models.json");
  const Json root = Json::parse(in, nullptr, false);
  if (!root.is_object()) return models;
  for (const auto& [fingerprint, entry] : root.items()) {
    if (!entry.is_object()) continue;
    try {
      models.push_back({.fingerprint = fingerprint,
                        .name = entry.value("name", ""),
                        .path = entry.value("path", ""),
                        .flops_per_thread_s = entry.value("flops_per_thread_s", 0.0)});
    } catch (const Json::exception&) {
      // A field of another type: as good as no entry.
    }
  }
  return models;
}

void write_index(const std::vector<KnownModel>& models) {
  Json root = Json::object();
  for (const KnownModel& model : models) {
    root[model.fingerprint] = {{"name", model.name},
                               {"path", model.path},
                               {"flops_per_thread_s", model.flops_per_thread_s}};
  }
  const fs::path path = cache_folder() / "models.json";
  const fs::path temporary = path.string() + "." + std::to_string(getpid());
  std::error_code ignored;
  fs::create_directories(path.parent_path(), ignored);
  {
    std::ofstream out(temporary);
    out << root.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    if (!out.flush()) {
      fs::remove(temporary, ignored);
      return;
    }
  }
  fs::rename(temporary, path, ignored);
}

// Writes the index if `change` says that it made a difference.
template <typename Change>
void change_index(Change change) {
  try {
    std::vector<KnownModel> models = read_index();
    if (change(models)) write_index(models);
  } catch (const Error&) {
    // No cache folder: nothing to remember in.
  }
}

// A new one where there is none.
KnownModel& entry_of(std::vector<KnownModel>& models, const std::string& fingerprint) {
  for (KnownModel& model : models) {
    if (model.fingerprint == fingerprint) return model;
  }
  return models.emplace_back(KnownModel{.fingerprint = fingerprint});
}

}  // namespace

std::vector<KnownModel> known_models() {
  try {
    return read_index();
  } catch (const Error&) {
    return {};
  }
}

std::optional<KnownModel> known_model(const std::string& fingerprint) {
  for (KnownModel& model : known_models()) {
    if (model.fingerprint == fingerprint) return std::move(model);
  }
  return std::nullopt;
}

void remember_model(const ModelInfo& info) {
  std::error_code error;
  const std::string path = fs::absolute(info.path, error).lexically_normal().string();
  if (error) return;
  change_index([&](std::vector<KnownModel>& models) {
    // A file is one model: what was there before is not there any more.
    const bool replaced = std::erase_if(models, [&](const KnownModel& model) {
                            return model.path == path && model.fingerprint != info.fingerprint;
                          }) > 0;
    KnownModel& entry = entry_of(models, info.fingerprint);
    if (entry.path == path && entry.name == info.name) return replaced;
    entry.path = path;
    entry.name = info.name;
    return true;
  });
}

void remember_speed(const std::string& fingerprint, double flops_per_thread_s) {
  change_index([&](std::vector<KnownModel>& models) {
    entry_of(models, fingerprint).flops_per_thread_s = flops_per_thread_s;
    return true;
  });
}

}  // namespace ctxzip::cli
