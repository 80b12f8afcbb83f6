#include "eval/source_code.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/fail.h"
#include "core/file.h"
#include "core/utf8.h"

namespace ctxzip::eval {
namespace {

namespace fs = std::filesystem;

constexpr size_t kNone = std::string_view::npos;
constexpr std::string_view kBlanks = " \t\r";
constexpr int64_t kFewestLines = 3;
constexpr int64_t kMostLines = 60;
constexpr int64_t kFewestWords = 6;  // of a description
constexpr size_t kLargestFile = 256 * 1024;

// A described function in its file: comment and code are byte ranges.
struct Found {
  size_t comment_begin = 0;
  size_t comment_end = 0;
  size_t begin = 0;
  size_t end = 0;
  std::string name = {};
  std::string description = {};
};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == kNone) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

struct Line {
  size_t begin = 0;
  size_t end = 0;  // of its text
  size_t next = 0;
};

std::vector<Line> lines_of(std::string_view text) {
  std::vector<Line> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back({at, end, std::min(end + 1, text.size())});
    at = end + 1;
  }
  return lines;
}

std::string_view text_of(std::string_view text, const Line& line) {
  return trimmed(text.substr(line.begin, line.end - line.begin));
}

int64_t count_lines(std::string_view code) {
  return 1 + std::count(code.begin(), code.end(), '\n');
}

int64_t count_words(std::string_view text) {
  int64_t n = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    n += text[at] != ' ' && (at == 0 || text[at - 1] == ' ');
  }
  return n;
}

// Takes whole-word occurrences of `name` out of a description.
std::string without_name(std::string text, const std::string& name) {
  constexpr std::string_view kInstead = "this function";
  for (size_t at = text.find(name); at != kNone; at = text.find(name, at)) {
    const size_t end = at + name.size();
    if ((at > 0 && is_name(text[at - 1])) || (end < text.size() && is_name(text[end]))) {
      at = end;
      continue;
    }
    text.replace(at, name.size(), kInstead);
    at += kInstead.size();
  }
  return text;
}

void append_words(std::string& description, std::string_view line) {
  line = trimmed(line);
  if (line.empty()) return;
  if (!description.empty()) description += ' ';
  description += line;
}

// A comment line of a C-like language without its markers.
std::string_view without_markers(std::string_view line) {
  line = trimmed(line);
  for (const std::string_view end : {"*/"}) {
    if (line.ends_with(end)) line.remove_suffix(end.size());
  }
  const size_t first = line.find_first_not_of("/*!");
  return first == kNone ? std::string_view() : trimmed(line.substr(first));
}

// Behind a comment, a string or a character that starts at `at`; `at` itself if none does.
size_t skip_literal(std::string_view text, size_t at) {
  const auto behind = [&](size_t found, size_t size) {
    return found == kNone ? text.size() : found + size;
  };
  if (text.substr(at).starts_with("//")) return behind(text.find('\n', at), 0);
  if (text.substr(at).starts_with("/*")) return behind(text.find("*/", at + 2), 2);
  const char quote = text[at];
  if (quote == '"' || quote == '`') {
    for (size_t end = at + 1; end < text.size(); ++end) {
      if (text[end] == '\\') {
        ++end;
      } else if (text[end] == quote || (text[end] == '\n' && quote == '"')) {
        return end + 1;
      }
    }
    return text.size();
  }
  // 'x' and '\n', but not the lifetimes of Rust.
  if (quote == '\'' && at + 2 < text.size()) {
    const size_t close = text.find('\'', at + (text[at + 1] == '\\' ? 3 : 1));
    if (close != kNone && close - at <= 7 && (close - at == 2 || text[at + 1] == '\\'))
      return close + 1;
  }
  return at;
}

// The { of the body of the function whose declaration starts at `at`; none for anything else.
size_t find_body(std::string_view text, size_t at) {
  int64_t depth = 0;
  bool has_arguments = false;
  for (; at < text.size(); ++at) {
    const size_t behind = skip_literal(text, at);
    if (behind > at) {
      at = behind - 1;
      continue;
    }
    const char c = text[at];
    if (c == '(' || c == '[') ++depth;
    if (c == ')' || c == ']') --depth;
    has_arguments |= c == '(';
    if (depth != 0) continue;
    if (c == '{') return has_arguments ? at : kNone;
    if (c == ';' || c == '}' || (c == '=' && !has_arguments)) return kNone;
  }
  return kNone;
}

// Behind the } that closes the { at `open`.
size_t find_close(std::string_view text, size_t open) {
  int64_t depth = 0;
  for (size_t at = open; at < text.size(); ++at) {
    const size_t behind = skip_literal(text, at);
    if (behind > at) {
      at = behind - 1;
      continue;
    }
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at + 1;
  }
  return kNone;
}

// The name before the first bracket of a declaration; empty for a statement or a type.
std::string declared_name(std::string_view declaration) {
  static constexpr std::array<std::string_view, 14> kNotFunctions{
      "if",    "for",    "while", "switch", "catch", "return",    "else",
      "class", "struct", "enum",  "union",  "impl",  "namespace", "interface"};
  const std::string_view first = declaration.substr(0, declaration.find_first_of(" \t\n("));
  if (std::find(kNotFunctions.begin(), kNotFunctions.end(), first) != kNotFunctions.end())
    return {};
  size_t end = declaration.find('(');
  if (first == "func" && declaration.starts_with("func (")) {  // a Go method's receiver comes first
    end = declaration.find('(', declaration.find(')'));
  }
  if (end == kNone) return {};
  // A template's arguments may stand before the bracket.
  while (end > 0 && (declaration[end - 1] == ' ' || declaration[end - 1] == '>')) {
    const size_t open = declaration[end - 1] == '>' ? declaration.rfind('<', end) : end - 1;
    if (open == kNone) return {};
    end = open;
  }
  size_t begin = end;
  while (begin > 0 && is_name(declaration[begin - 1])) --begin;
  return std::string(declaration.substr(begin, end - begin));
}

// The comment above a line and the line after it.
struct Comment {
  size_t first_line = 0;
  size_t next_line = 0;
  std::string description;
};

std::optional<Comment> take_comment(std::string_view text, const std::vector<Line>& lines,
                                    size_t at) {
  Comment comment{.first_line = at, .next_line = at, .description = {}};
  std::string_view line = text_of(text, lines[at]);
  const bool block = line.starts_with("/*");
  if (!block && !line.starts_with("//")) return std::nullopt;
  for (; comment.next_line < lines.size(); ++comment.next_line) {
    line = text_of(text, lines[comment.next_line]);
    if (!block && !line.starts_with("//")) break;
    append_words(comment.description, without_markers(line));
    if (block && line.find("*/") != kNone) {
      ++comment.next_line;
      break;
    }
  }
  return comment;
}

std::vector<Found> find_with_braces(std::string_view text) {
  const std::vector<Line> lines = lines_of(text);
  std::vector<Found> all;
  for (size_t at = 0; at < lines.size(); ++at) {
    const std::optional<Comment> comment = take_comment(text, lines, at);
    if (!comment) continue;
    at = comment->next_line - 1;
    if (comment->next_line == lines.size()) break;
    const std::string_view next = text_of(text, lines[comment->next_line]);
    if (next.empty() || (next[0] == '#' && !next.starts_with("#["))) continue;
    const size_t begin = lines[comment->next_line].begin;
    const size_t open = find_body(text, begin);
    const size_t end = open == kNone ? kNone : find_close(text, open);
    if (end == kNone) continue;
    std::string name = declared_name(trimmed(text.substr(begin, open - begin)));
    if (name.empty()) continue;
    all.push_back({lines[comment->first_line].begin, begin, begin, end, std::move(name),
                   comment->description});
    while (at + 1 < lines.size() && lines[at + 1].begin < end) ++at;
  }
  return all;
}

size_t indent_of(std::string_view text, const Line& line) {
  const size_t first = text.find_first_not_of(" \t", line.begin);
  return first == kNone || first >= line.end ? kNone : first - line.begin;
}

// The line behind the header that starts at `at`: the one after the line that ends with a colon
// outside brackets.
size_t behind_python_header(std::string_view text, const std::vector<Line>& lines, size_t at) {
  int64_t depth = 0;
  for (; at < lines.size(); ++at) {
    const std::string_view line = text_of(text, lines[at]);
    for (const char c : line) depth += (c == '(' || c == '[') - (c == ')' || c == ']');
    if (depth == 0) return line.ends_with(':') ? at + 1 : lines.size();
  }
  return at;
}

std::optional<Found> take_python_function(std::string_view text, const std::vector<Line>& lines,
                                          size_t at) {
  std::string_view header = text_of(text, lines[at]);
  if (header.starts_with("async ")) header.remove_prefix(6);
  if (!header.starts_with("def ")) return std::nullopt;
  const size_t body = behind_python_header(text, lines, at);
  if (body >= lines.size()) return std::nullopt;
  std::string_view first = text_of(text, lines[body]);
  if (first.starts_with("r")) first.remove_prefix(1);
  const std::string_view quotes = first.substr(0, 3);
  if (quotes != "\"\"\"" && quotes != "'''") return std::nullopt;
  const size_t start = text.find(quotes, lines[body].begin) + quotes.size();
  const size_t close = text.find(quotes, start);
  if (close == kNone) return std::nullopt;
  Found found{.comment_begin = lines[body].begin, .begin = lines[at].begin};
  found.name = std::string(header.substr(4, header.find('(') - 4));
  // Sections about arguments and examples after the first paragraph would name them all.
  for (const Line& line : lines_of(text.substr(start, close - start))) {
    const std::string_view words = text_of(text.substr(start), line);
    if (words.empty() && !found.description.empty()) break;
    append_words(found.description, words);
  }
  size_t last = at;
  for (size_t next = body; next < lines.size(); ++next) {
    if (lines[next].begin < close) found.comment_end = lines[next].next;
    const size_t indent = indent_of(text, lines[next]);
    if (indent == kNone) continue;
    if (lines[next].begin > close && indent <= indent_of(text, lines[at])) break;
    last = next;
  }
  found.end = lines[last].end;
  if (found.comment_end >= found.end) return std::nullopt;  // nothing but the docstring
  return found;
}

std::vector<Found> find_python(std::string_view text) {
  const std::vector<Line> lines = lines_of(text);
  std::vector<Found> all;
  for (size_t at = 0; at < lines.size(); ++at) {
    const auto found = take_python_function(text, lines, at);
    if (!found) continue;
    all.push_back(*found);
    while (at + 1 < lines.size() && lines[at + 1].begin < found->end) ++at;
  }
  return all;
}

}  // namespace

std::optional<SourceKind> source_kind(std::string_view file_name) {
  static constexpr std::array<std::string_view, 15> kBraceEndings{
      ".c",  ".h",  ".cc", ".hh", ".cpp", ".hpp", ".cxx",  ".java",
      ".js", ".ts", ".rs", ".go", ".cs",  ".kt",  ".swift"};
  if (file_name.ends_with(".py")) return SourceKind::kPython;
  const auto fits = [&](std::string_view ending) { return file_name.ends_with(ending); };
  if (std::any_of(kBraceEndings.begin(), kBraceEndings.end(), fits)) return SourceKind::kBraces;
  return std::nullopt;
}

std::vector<SourcePiece> split_source(std::string_view text, SourceKind kind) {
  std::vector<SourcePiece> pieces;
  size_t done = 0;
  for (const Found& found :
       kind == SourceKind::kPython ? find_python(text) : find_with_braces(text)) {
    // Braces: the comment stands before the code. Python: inside it.
    const size_t start = std::min(found.comment_begin, found.begin);
    const std::string code =
        kind == SourceKind::kPython
            ? std::string(text.substr(found.begin, found.comment_begin - found.begin)) +
                  std::string(text.substr(found.comment_end, found.end - found.comment_end))
            : std::string(text.substr(found.begin, found.end - found.begin));
    const int64_t n_lines = count_lines(code);
    if (n_lines < kFewestLines || n_lines > kMostLines) continue;
    if (count_words(found.description) < kFewestWords) continue;
    if (start > done) pieces.push_back({.text = std::string(text.substr(done, start - done))});
    pieces.push_back({.text = code,
                      .function = SourceFunction{
                          found.name, without_name(found.description, found.name), code}});
    done = found.end;
  }
  if (done < text.size()) pieces.push_back({.text = std::string(text.substr(done))});
  return pieces;
}

std::vector<SourceFile> read_source_folder(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    fail(ErrorKind::kNotFound, "{}: is not a folder: expected one with source files", path);
  }
  std::vector<SourceFile> files;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(path, options), end; at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with(".")) {
      if (at->is_directory(error)) at.disable_recursion_pending();
      continue;
    }
    const auto kind = source_kind(name);
    if (!kind || !at->is_regular_file(error) || at->file_size(error) > kLargestFile) continue;
    const MappedFile file(at->path().string());
    const std::string text =
        repair_utf8({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
    SourceFile source{fs::relative(at->path(), path, error).generic_string(),
                      split_source(text, *kind)};
    const auto described = [](const SourcePiece& piece) { return piece.function.has_value(); };
    if (std::any_of(source.pieces.begin(), source.pieces.end(), described))
      files.push_back(std::move(source));
  }
  if (files.empty()) {
    fail(ErrorKind::kCorruptFile,
         "{}: holds no source file with a described function (a comment above it, or a docstring)",
         path);
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.name < b.name; });
  return files;
}

}  // namespace ctxzip::eval
