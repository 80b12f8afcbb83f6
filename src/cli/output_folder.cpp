#include "cli/output_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>

#include "core/fail.h"
#include "core/file.h"

namespace ctxzip::cli {

namespace fs = std::filesystem;

void make_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    fail(ErrorKind::kIo, "{}: is no folder: the files need one", path);
  }
  fs::create_directories(path, error);
  if (error) fail(ErrorKind::kIo, "{}: cannot be made: {}", path, error.message());
}

void write_files(const std::string& folder, const std::vector<eval::ReportFile>& files) {
  for (const eval::ReportFile& file : files) {
    write_file_atomically((fs::path(folder) / file.name).string(), [&](const WriteFn& sink) {
      sink(std::as_bytes(std::span(file.content)));
    });
  }
}

std::string list_files(const std::string& folder, const std::vector<eval::ReportFile>& files) {
  std::string text;
  for (const eval::ReportFile& file : files) {
    text += fmt::format("\n  {}", (fs::path(folder) / file.name).string());
  }
  return text + "\n";
}

}  // namespace ctxzip::cli
