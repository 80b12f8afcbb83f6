// A report as files for people: figures, a Markdown table, one HTML page.
#pragma once

#include <string>
#include <vector>

#include "eval/report.h"

namespace ctxzip::eval {

struct ReportFile {
  std::string name;
  std::string content;
};

// report.md, report.html (which holds the figures too) and the figures as SVG: score against ratio
// for each model and task; relative performance against ratio for each model; bars of all models at
// one ratio; bars of settings where runs differ in one.
std::vector<ReportFile> report_files(const Report& report);

// The tables of report.md.
std::string report_markdown(const Report& report, const std::vector<ReportFile>& figures);

}  // namespace ctxzip::eval
