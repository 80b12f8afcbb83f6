#include "cli/cache_folder.h"

#include <cstdlib>

#include "core/fail.h"

namespace ctxzip::cli {
namespace {

const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

std::filesystem::path cache_folder() {
  using std::filesystem::path;
  if (const char* const own = variable("CTXZIP_CACHE")) return own;
  if (const char* const xdg = variable("XDG_CACHE_HOME")) return path(xdg) / "ctxzip";
  if (const char* const home = variable("HOME")) return path(home) / ".cache" / "ctxzip";
  fail(ErrorKind::kNotFound, "no cache folder: HOME is not set; set CTXZIP_CACHE to a folder");
}

std::filesystem::path models_folder() { return cache_folder() / "models"; }

}  // namespace ctxzip::cli
