// JSON data files, read so that an error names the file and the place in it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace ctxzip::eval {

// One value of a file and where it is: "data[3].paragraphs[0]". Refers to the file's content, which
// must outlive it. Every function throws Error{kCorruptFile} when the value is something else.
class JsonPlace {
 public:
  const nlohmann::json& value() const { return *value_; }

  JsonPlace at(const char* key) const;
  std::optional<JsonPlace> find(const char* key) const;
  std::vector<JsonPlace> items() const;
  std::string text() const;
  // A string, or a number as it is written.
  std::string text_or_number() const;
  // One of those, or an array of them.
  std::vector<std::string> texts() const;
  // Throws Error{kCorruptFile}: a value of another kind; one of the right kind that says too
  // little.
  [[noreturn]] void refuse(const std::string& expected) const;
  [[noreturn]] void refuse_text(const std::string& lacking) const;

 private:
  friend void read_json(const std::string& path, const char* format,
                        const std::function<void(const JsonPlace&)>& use);
  friend void read_json_lines(const std::string& path, const char* format,
                              const std::function<void(const JsonPlace&)>& use);
  // What all places of a file share.
  struct File {
    const std::string& path;
    const char* format;
  };
  JsonPlace(const nlohmann::json& value, std::string place, const File& file)
      : value_(&value), place_(std::move(place)), file_(&file) {}
  std::string shown_place() const;
  std::string member(const char* key) const;

  const nlohmann::json* value_;
  std::string place_;
  const File* file_;
};

// Reads a whole file as one value and shows it to `use`. `format` names what the file should be in
// errors ("SQuAD JSON, version 1.1 or 2.0"). Throws Error: kNotFound, kIo, kCorruptFile.
void read_json(const std::string& path, const char* format,
               const std::function<void(const JsonPlace&)>& use);

// The same for a file with one value a line; blank lines are skipped, an empty file is refused.
void read_json_lines(const std::string& path, const char* format,
                     const std::function<void(const JsonPlace&)>& use);

}  // namespace ctxzip::eval
