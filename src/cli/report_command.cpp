#include <fmt/format.h>

#include <memory>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/json_output.h"
#include "cli/output_folder.h"
#include "cli/standard_output.h"
#include "eval/report_page.h"

namespace ctxzip::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> runs;
  std::string out;
  OutputOptions output;
};

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
  print_out(fmt::format("{} runs of {} tasks:", runs.size(), report.tasks.size()) +
            list_files(flags.out, files));
  return kExitOk;
}

}  // namespace

Run add_report(CLI::App& app) {
  auto flags = std::make_shared<ReportFlags>();
  add_texts(app, "RUN.jsonl", flags->runs, "Logs that `ctxzip eval` wrote")->required();
  app.add_option("-o,--out", flags->out, "Folder for the files; it is made if it is missing")
      ->required()
      ->type_name("DIR");
  add_output_options(app, flags->output, "docs/cli.md");
  app.footer(
      "Examples:\n"
      "  ctxzip report squad.jsonl niah.jsonl -o report\n"
      "  ctxzip report chunk512.jsonl chunk2048.jsonl -o ablation\n"
      "Runs that differ in an option are drawn beside each other.");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
