#include "cli/output_file.h"

#include <unistd.h>

#include <filesystem>

#include "core/fail.h"

namespace ctxzip::cli {

namespace fs = std::filesystem;

void check_output_file(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    fail(ErrorKind::kIo, "{}: is a folder or a device, and no file to be replaced", path);
  }
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder, ignored)) {
    fail(ErrorKind::kNotFound, "{}: there is no folder {}", path, folder.string());
  }
  if (access(folder.c_str(), W_OK) != 0) {
    fail(ErrorKind::kIo, "{}: the folder {} cannot be written to", path, folder.string());
  }
}

}  // namespace ctxzip::cli
