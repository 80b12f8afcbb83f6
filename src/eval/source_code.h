// Functions and their comments in source files of common languages, found by layout and not by
// parsing: good enough to ask for them, not to compile them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ctxzip::eval {

struct SourceFunction {
  std::string name;
  std::string description;  // its comment without markers; its own name is taken out
  std::string code;         // without that comment
};

// A file in pieces, in order; together they are the file without the comments that became
// descriptions.
struct SourcePiece {
  std::string text;
  std::optional<SourceFunction> function = {};  // whose code this piece is
};

// C-like languages (braces; a comment directly above the function) and Python (indentation; a
// docstring): by the file name's extension, nothing for others.
enum class SourceKind { kBraces, kPython };
std::optional<SourceKind> source_kind(std::string_view file_name);

// Described functions of 3 to 60 lines; whatever is not recognised stays part of other pieces.
std::vector<SourcePiece> split_source(std::string_view text, SourceKind kind);

struct SourceFile {
  std::string name;  // path below the folder, with /
  std::vector<SourcePiece> pieces;
};

// Files of a folder and its subfolders that hold a described function, by name; hidden ones and
// those above 256 KiB are left out. Throws Error: kNotFound, kIo, kCorruptFile (no such file).
std::vector<SourceFile> read_source_folder(const std::string& path);

}  // namespace ctxzip::eval
