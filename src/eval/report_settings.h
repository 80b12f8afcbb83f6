// What tells the runs of a report apart, in words.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/report.h"

namespace ctxzip::eval {

struct RunSetting {
  std::string data;     // "lengths [500]"; empty if all runs of this model and task agree
  std::string options;  // those that differ from what most runs have: "chunk_tokens 512"

  std::string text() const;  // both
};

struct ReportSettings {
  std::vector<RunSetting> runs;  // one for each run
  std::string usual;             // values of the options where none is named; empty if none differ
};

// An option that a log does not hold counts as the usual one.
ReportSettings report_settings(std::span<const RunFile> runs);

}  // namespace ctxzip::eval
