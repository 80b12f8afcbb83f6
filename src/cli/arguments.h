// Flags with checked values: a bad one is a CLI::ValidationError that names the flag, the value
// found and what is allowed.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace ctxzip::cli {

struct RealRange {
  double min = 0;
  double max = std::numeric_limits<double>::max();
  bool min_excluded = false;
};

struct IntegerRange {
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();
};

// The arguments as CLI::App::parse takes them, without the program's name. A list would split "[a,
// b]" in two; such arguments get a mark that every function below removes again.
std::vector<std::string> parser_arguments(int argc, char** argv);

// Any text.
CLI::Option* add_text(CLI::App& app, const std::string& flag, std::function<void(std::string)> set,
                      const std::string& help);
// One or more positional texts; none keeps `target` as it is.
CLI::Option* add_texts(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                       const std::string& help);

// Each calls `set` with the checked value while the command line is parsed.
CLI::Option* add_real(CLI::App& app, const std::string& flag, RealRange range,
                      std::function<void(double)> set, const std::string& help);
CLI::Option* add_integer(CLI::App& app, const std::string& flag, IntegerRange range,
                         std::function<void(int64_t)> set, const std::string& help);
// Bytes as in parse_byte_size; at least one.
CLI::Option* add_size(CLI::App& app, const std::string& flag, std::function<void(int64_t)> set,
                      const std::string& help);

// One of a few words; each stands for a value of `E`.
template <typename E>
CLI::Option* add_choice(CLI::App& app, const std::string& flag,
                        std::vector<std::pair<std::string, E>> choices, std::function<void(E)> set,
                        const std::string& help) {
  std::string words;
  for (const auto& [word, value] : choices) words += (words.empty() ? "" : "|") + word;
  auto parse = [flag, choices = std::move(choices), set = std::move(set),
                words](const std::string& text) {
    for (const auto& [word, value] : choices) {
      if (word == text) return set(value);
    }
    throw CLI::ValidationError(flag, "'" + text + "' is not one of " + words);
  };
  return app.add_option_function<std::string>(flag, parse, help)->type_name(words);
}

}  // namespace ctxzip::cli
