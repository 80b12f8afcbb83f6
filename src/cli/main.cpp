#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <new>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/exit_code.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/standard_output.h"
#include "ctxzip/error.h"
#include "ctxzip_version.h"

namespace ctxzip::cli {
namespace {

struct Entry {
  CLI::App* app;
  Run run;
};

// The command that was typed, down to the innermost: "ctxzip model fetch".
const CLI::App& innermost(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.front());
}

std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name()
                                     : full_name(*app.get_parent()) + " " + app.get_name();
}

bool wants_json(const CLI::App& app) {
  const CLI::Option* const flag = innermost(app).get_option_no_throw("--json");
  return flag != nullptr && flag->count() > 0;
}

int usage_error(const CLI::App& app, const CLI::ParseError& error) {
  fmt::print(stderr, "ctxzip: {}\nTry '{} --help'.\n", error.what(), full_name(innermost(app)));
  return kExitUsage;
}

const char* kind_name(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalidArgument:
      return "invalid_argument";
    case ErrorKind::kNotFound:
      return "not_found";
    case ErrorKind::kIo:
      return "io";
    case ErrorKind::kCorruptFile:
      return "corrupt_file";
    case ErrorKind::kMismatch:
      return "mismatch";
    case ErrorKind::kUnsupported:
      return "unsupported";
    case ErrorKind::kTooLong:
      return "too_long";
    case ErrorKind::kOutOfMemory:
      return "out_of_memory";
    case ErrorKind::kCancelled:
      return "cancelled";
  }
  return "error";
}

int exit_code(ErrorKind kind) {
  if (kind == ErrorKind::kCancelled) return interrupted_exit_code();
  return kind == ErrorKind::kInvalidArgument ? kExitUsage : kExitFailed;
}

int failure(const CLI::App& app, const char* kind, const std::string& message, int exit_code) {
  fmt::print(stderr, "ctxzip: {}\n", message);
  if (wants_json(app)) print_json({{"error", {{"kind", kind}, {"message", message}}}});
  return exit_code;
}

int run_command(CLI::App& app, const std::vector<Entry>& entries) {
  try {
    int code = kExitOk;
    for (const Entry& entry : entries) {
      if (entry.app->parsed()) code = entry.run();
    }
    flush_out();
    return code;
  } catch (const CLI::ParseError& error) {
    return usage_error(app, error);
  } catch (const Error& error) {
    const bool cancelled = error.kind() == ErrorKind::kCancelled;
    return failure(app, kind_name(error.kind()), cancelled ? "interrupted" : error.what(),
                   exit_code(error.kind()));
  } catch (const std::bad_alloc&) {
    return failure(app, kind_name(ErrorKind::kOutOfMemory), "out of memory", kExitFailed);
  } catch (const std::exception& error) {
    return failure(app, "error", error.what(), kExitFailed);
  }
}

int run(int argc, char** argv) {
  CLI::App app("Compresses a text's KV cache once; answers questions about it from the small file.",
               "ctxzip");
  app.set_version_flag("--version", "ctxzip " CTXZIP_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Examples:\n"
      "  ctxzip zip manual.txt --ratio 0.3\n"
      "  ctxzip ask manual.txt.ctz \"How is it started?\" \"How is it stopped?\"\n"
      "Each command explains itself: ctxzip zip --help");
  std::vector<Entry> entries;
  for (const Command& command : commands()) {
    CLI::App* const sub = app.add_subcommand(command.name, command.summary);
    entries.push_back({sub, command.add(*sub)});
  }
  if (argc < 2) {
    std::cerr << app.help();
    return kExitUsage;
  }
  try {
    app.parse(parser_arguments(argc, argv));
  } catch (const CLI::Success& help_or_version) {
    return app.exit(help_or_version);
  } catch (const CLI::ParseError& error) {
    if (app.get_subcommands().empty() && argv[1][0] != '-') {
      return usage_error(
          app, CLI::ParseError(fmt::format("there is no command '{}'", argv[1]), kExitUsage));
    }
    return usage_error(app, error);
  }
  return run_command(app, entries);
}

}  // namespace
}  // namespace ctxzip::cli

int main(int argc, char** argv) { return ctxzip::cli::run(argc, argv); }
