#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/json_output.h"
#include "cli/standard_output.h"
#include "core/fail.h"
#include "core/file.h"
#include "eval/report_page.h"

namespace ctxzip::cli {
namespace {

namespace fs = std::filesystem;

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out;
  OutputOptions output;
};

void make_folder(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !fs::is_directory(path, error)) {
    fail(ErrorKind::kIo, "{}: is no folder: the report's files need one", path);
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

int run(const ReportFlags& flags) {
  std::vector<eval::RunFile> runs;
  for (const std::string& path : flags.runs) runs.push_back(eval::read_run(path));
  const eval::Report report = eval::make_report(runs);
  const std::vector<eval::ReportFile> files = eval::report_files(report);
  make_folder(flags.out);
  write_files(flags.out, files);
  for (const std::string& note : report.notes) print_note(note);
  if (flags.output.json) {
    Json json = eval::to_json(report);
    json["files"] = Json::array();
    for (const eval::ReportFile& file : files) json["files"].push_back(file.name);
    print_json(json);
    return kExitOk;
  }
  std::string text = fmt::format("{} runs of {} tasks:", runs.size(), report.tasks.size());
  for (const eval::ReportFile& file : files) {
    text += fmt::format("\n  {}", (fs::path(flags.out) / file.name).string());
  }
  print_out(text + "\n");
  return kExitOk;
}

}  // namespace

Run add_report(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();
  add_texts(app, "RUN.jsonl", flags->runs, "Logs that `ctxzip eval` wrote")->required();
  app.add_option("-o,--out", flags->out, "Folder for the files; it is made if it is missing")
      ->required()
      ->type_name("DIR");
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip report squad.jsonl niah.jsonl -o report\n"
      "  ctxzip report chunk512.jsonl chunk2048.jsonl -o ablation\n"
      "Runs that differ in an option are drawn beside each other.");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
