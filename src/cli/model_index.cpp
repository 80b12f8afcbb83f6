#include "cli/model_index.h"

#include <unistd.h>

#include <algorithm>
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

// Changes the entry of one fingerprint, and writes only if that made a difference.
template <typename Change>
void change_entry(const std::string& fingerprint, Change change) {
  try {
    std::vector<KnownModel> models = read_index();
    auto entry = std::find_if(models.begin(), models.end(),
                              [&](const KnownModel& m) { return m.fingerprint == fingerprint; });
    if (entry == models.end()) {
      entry = models.insert(models.end(), KnownModel{.fingerprint = fingerprint});
    }
    if (change(*entry)) write_index(models);
  } catch (const Error&) {
    // No cache folder: nothing to remember in.
  }
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
  change_entry(info.fingerprint, [&](KnownModel& entry) {
    if (entry.path == path && entry.name == info.name) return false;
    entry.path = path;
    entry.name = info.name;
    return true;
  });
}

void remember_speed(const std::string& fingerprint, double flops_per_thread_s) {
  change_entry(fingerprint, [&](KnownModel& entry) {
    entry.flops_per_thread_s = flops_per_thread_s;
    return true;
  });
}

}  // namespace ctxzip::cli
