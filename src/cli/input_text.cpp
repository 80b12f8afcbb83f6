#include "cli/input_text.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <string_view>

#include "core/fail.h"

namespace ctxzip::cli {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

std::string read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char buffer[1 << 16];
  // Not until fread gives nothing: a terminal would then have to end the text twice.
  while (std::feof(file) == 0 && std::ferror(file) == 0) {
    text.append(buffer, std::fread(buffer, 1, sizeof buffer, file));
  }
  if (std::ferror(file) != 0) {
    fail(ErrorKind::kIo, "{}: cannot be read: {}", name, std::strerror(errno));
  }
  return text;
}

std::string read_text(const std::string& path) {
  if (path == "-") return read_all(stdin, "standard input");
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    fail(errno == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo, "{}: cannot be opened: {}", path,
         std::strerror(errno));
  }
  std::string text = read_all(file.get(), path);
  if (text.starts_with("GGUF")) {
    fail(ErrorKind::kUnsupported, "{}: is a GGUF or .ctz file; zip takes texts", path);
  }
  return text;
}

// Without byte order mark and line ends at the end, which mean nothing inside a joined text.
std::string_view without_frame(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string read_texts(const std::vector<std::string>& paths) {
  std::string all;
  for (const std::string& path : paths) {
    const std::string text = read_text(path);
    const std::string_view body = without_frame(text);
    if (!all.empty() && !body.empty()) all += "\n\n";
    all += body;
  }
  if (all.find_first_not_of(" \t\r\n") == std::string::npos) {
    fail(ErrorKind::kUnsupported, "{}: there is no text to zip",
         paths.size() == 1 ? (paths[0] == "-" ? "standard input" : paths[0]) : "the files");
  }
  return all;
}

std::vector<std::string> read_question_lines() {
  std::vector<std::string> lines;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) lines.push_back(line);
  }
  return lines;
}

}  // namespace ctxzip::cli
