#include "cli/arguments.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "cli/byte_size.h"

namespace ctxzip::cli {
namespace {

constexpr char kBracketMark = '\x01';

std::string without_mark(const std::string& text) {
  return text.starts_with(kBracketMark) ? text.substr(1) : text;
}

// The whole of `text` as a number, or nothing.
template <typename T>
bool parse_number(const std::string& text, T& value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end;
}

std::string describe(const RealRange& range) {
  const char* const above = range.min_excluded ? "above" : "at least";
  if (range.max == RealRange{}.max) return fmt::format("a number {} {}", above, range.min);
  return fmt::format("a number {} {} and at most {}", above, range.min, range.max);
}

std::string describe(const IntegerRange& range) {
  if (range.max == IntegerRange{}.max) return fmt::format("a whole number, at least {}", range.min);
  return fmt::format("a whole number from {} to {}", range.min, range.max);
}

[[noreturn]] void refuse(const std::string& flag, const std::string& text,
                         const std::string& allowed) {
  throw CLI::ValidationError(flag, fmt::format("'{}' is not {}", without_mark(text), allowed));
}

}  // namespace

std::vector<std::string> parser_arguments(int argc, char** argv) {
  // In reverse order, as CLI11 takes them.
  std::vector<std::string> arguments;
  for (int at = argc - 1; at >= 1; --at) {
    const std::string argument = argv[at];
    const bool bracketed = argument.starts_with('[') && argument.ends_with(']');
    arguments.push_back(bracketed ? kBracketMark + argument : argument);
  }
  return arguments;
}

CLI::Option* add_text(CLI::App& app, const std::string& flag, std::function<void(std::string)> set,
                      const std::string& help) {
  return app
      .add_option_function<std::string>(
          flag, [set = std::move(set)](const std::string& text) { set(without_mark(text)); }, help)
      ->type_name("TEXT");
}

CLI::Option* add_texts(CLI::App& app, const std::string& name, std::vector<std::string>& target,
                       const std::string& help) {
  auto take = [&target](const std::vector<std::string>& texts) {
    target.clear();
    for (const std::string& text : texts) target.push_back(without_mark(text));
  };
  return app.add_option_function<std::vector<std::string>>(name, take, help)->type_name("");
}

CLI::Option* add_real(CLI::App& app, const std::string& flag, RealRange range,
                      std::function<void(double)> set, const std::string& help) {
  auto parse = [flag, range, set = std::move(set)](const std::string& text) {
    double value = 0;
    const bool ok = parse_number(text, value) && std::isfinite(value) && value <= range.max &&
                    (range.min_excluded ? value > range.min : value >= range.min);
    if (!ok) refuse(flag, text, describe(range));
    set(value);
  };
  return app.add_option_function<std::string>(flag, parse, help)->type_name("X");
}

CLI::Option* add_integer(CLI::App& app, const std::string& flag, IntegerRange range,
                         std::function<void(int64_t)> set, const std::string& help) {
  auto parse = [flag, range, set = std::move(set)](const std::string& text) {
    int64_t value = 0;
    if (!parse_number(text, value) || value < range.min || value > range.max) {
      refuse(flag, text, describe(range));
    }
    set(value);
  };
  return app.add_option_function<std::string>(flag, parse, help)->type_name("N");
}

CLI::Option* add_size(CLI::App& app, const std::string& flag, std::function<void(int64_t)> set,
                      const std::string& help) {
  auto parse = [flag, set = std::move(set)](const std::string& text) {
    const auto bytes = parse_byte_size(text);
    if (!bytes) refuse(flag, text, "a size such as 200MiB, 1.5G, 512K or 4096");
    set(*bytes);
  };
  return app.add_option_function<std::string>(flag, parse, help)->type_name("SIZE");
}

}  // namespace ctxzip::cli
