#include "eval/report_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace ctxzip::eval {
namespace {

// Fields of a header that are no options: they say what was measured or follow from it.
const std::set<std::string> kNoOptions{
    "record",      "format",      "format_version", "ctxzip", "task",    "group",
    "instruction", "metrics",     "model",          "data",   "methods", "ratios",
    "n_contexts",  "n_questions", "seed",           "turns",  "sampling"};
// Options that each task has a usual value of.
const std::set<std::string> kOptionsOfTask{"max_tokens", "block_rows"};
constexpr const char* kDataFields[] = {"lengths", "file", "filler"};

// Of an option's values the one that most runs have, the first of equals.
class UsualValues {
 public:
  explicit UsualValues(std::span<const RunFile> runs) {
    for (const RunFile& run : runs) {
      for (const auto& [name, value] : run.header.items()) {
        if (kNoOptions.contains(name)) continue;
        auto& values = values_[key(run, name)];
        const auto same = [&value = value](const auto& known) { return known.first == value; };
        auto found = std::find_if(values.begin(), values.end(), same);
        if (found == values.end()) found = values.insert(values.end(), {value, 0});
        ++found->second;
      }
    }
  }

  bool varies(const RunFile& run, const std::string& name) const {
    return values_.at(key(run, name)).size() > 1;
  }
  const Json& usual(const RunFile& run, const std::string& name) const {
    const auto& values = values_.at(key(run, name));
    return std::max_element(values.begin(), values.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; })
        ->first;
  }

 private:
  static std::pair<std::string, std::string> key(const RunFile& run, const std::string& name) {
    return {name, kOptionsOfTask.contains(name) ? run.header.at("task").get<std::string>() : ""};
  }
  std::map<std::pair<std::string, std::string>, std::vector<std::pair<Json, int>>> values_;
};

void append(const std::string& name, const Json& value, std::string& text) {
  const std::string shown = value.is_string() ? value.get<std::string>() : to_line(value);
  text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, shown);
}

bool same_model_and_task(const RunFile& a, const RunFile& b) {
  return a.header.at("task") == b.header.at("task") &&
         a.header.at("model").at("fingerprint") == b.header.at("model").at("fingerprint");
}

std::string data_text(const RunFile& run, std::span<const RunFile> runs) {
  const auto field = [](const RunFile& of, const char* name) {
    return of.header.value("data", Json::object()).value(name, Json());
  };
  std::string text;
  for (const char* const name : kDataFields) {
    const Json own = field(run, name);
    const auto differs = [&](const RunFile& other) {
      return same_model_and_task(run, other) && field(other, name) != own;
    };
    if (!own.is_null() && std::any_of(runs.begin(), runs.end(), differs)) append(name, own, text);
  }
  return text;
}

}  // namespace

std::string RunSetting::text() const {
  return data + (data.empty() || options.empty() ? "" : ", ") + options;
}

ReportSettings report_settings(std::span<const RunFile> runs) {
  const UsualValues values(runs);
  ReportSettings settings;
  std::set<std::string> named;
  for (const RunFile& run : runs) {
    RunSetting setting{.data = data_text(run, runs), .options = {}};
    for (const auto& [name, value] : run.header.items()) {
      if (kNoOptions.contains(name) || !values.varies(run, name)) continue;
      if (value != values.usual(run, name)) append(name, value, setting.options);
      const bool of_all = !kOptionsOfTask.contains(name);
      if (of_all && named.insert(name).second)
        append(name, values.usual(run, name), settings.usual);
    }
    settings.runs.push_back(std::move(setting));
  }
  return settings;
}

}  // namespace ctxzip::eval
