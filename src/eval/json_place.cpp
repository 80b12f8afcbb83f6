#include "eval/json_place.h"

#include <fmt/format.h>

#include <string_view>

#include "core/fail.h"
#include "core/file.h"

namespace ctxzip::eval {
namespace {

using Json = nlohmann::json;

Json parse(std::string_view text, const std::string& path, const std::string& place,
           const char* format) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail(ErrorKind::kCorruptFile, "{}: {}is not JSON: error at byte {} (expected {})", path,
         place.empty() ? "" : place + " ", error.byte, format);
  }
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

}  // namespace

std::string JsonPlace::shown_place() const { return place_.empty() ? "the top level" : place_; }

std::string JsonPlace::member(const char* key) const {
  return place_.empty() ? key : place_ + "." + key;
}

void JsonPlace::refuse(const std::string& expected) const {
  fail(ErrorKind::kCorruptFile, "{}: {} is {}, expected {} ({})", file_->path, shown_place(),
       value_->type_name(), expected, file_->format);
}

void JsonPlace::refuse_text(const std::string& lacking) const {
  fail(ErrorKind::kCorruptFile, "{}: {} has no {} ({})", file_->path, shown_place(), lacking,
       file_->format);
}

std::optional<JsonPlace> JsonPlace::find(const char* key) const {
  if (!value_->is_object()) refuse("an object");
  const auto found = value_->find(key);
  if (found == value_->end()) return std::nullopt;
  return JsonPlace(*found, member(key), *file_);
}

JsonPlace JsonPlace::at(const char* key) const {
  if (const auto found = find(key)) return *found;
  fail(ErrorKind::kCorruptFile, "{}: {} has no \"{}\" ({})", file_->path, shown_place(), key,
       file_->format);
}

std::vector<JsonPlace> JsonPlace::items() const {
  if (!value_->is_array()) refuse("an array");
  std::vector<JsonPlace> places;
  for (size_t index = 0; index < value_->size(); ++index) {
    places.push_back({(*value_)[index], fmt::format("{}[{}]", place_, index), *file_});
  }
  return places;
}

std::string JsonPlace::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

std::string JsonPlace::text_or_number() const {
  if (value_->is_string()) return value_->get<std::string>();
  if (!value_->is_number()) refuse("a string or a number");
  return value_->dump();
}

std::vector<std::string> JsonPlace::texts() const {
  if (!value_->is_array()) return {text_or_number()};
  std::vector<std::string> all;
  for (const JsonPlace& item : items()) all.push_back(item.text_or_number());
  return all;
}

void read_json(const std::string& path, const char* format,
               const std::function<void(const JsonPlace&)>& use) {
  const MappedFile file(path);
  const Json json = parse(text_of(file), path, "", format);
  const JsonPlace::File shared{path, format};
  use(JsonPlace(json, "", shared));
}

void read_json_lines(const std::string& path, const char* format,
                     const std::function<void(const JsonPlace&)>& use) {
  const MappedFile file(path);
  const JsonPlace::File shared{path, format};
  std::string_view rest = text_of(file);
  int64_t n_used = 0;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string place = fmt::format("line {}", number);
    const Json json = parse(line, path, place, format);
    use(JsonPlace(json, place, shared));
    ++n_used;
  }
  if (n_used == 0) {
    fail(ErrorKind::kCorruptFile, "{}: is empty, expected {}", path, format);
  }
}

}  // namespace ctxzip::eval
