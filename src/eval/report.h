// From the logs of several runs to one comparison: scores by task, performance relative to the full
// cache by model, and what differs between runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "eval/record.h"
#include "eval/summary.h"

namespace ctxzip::eval {

// A log as it is on disk.
struct RunFile {
  std::string name;  // of the file, without its folder
  Json header;
  std::vector<AnswerRecord> records = {};  // of whole contexts
  int64_t n_contexts = 0;                  // whole ones in the file
};

// Leaves out what an interrupted run left of its last context. Throws Error: kNotFound, kIo,
// kCorruptFile (no log of an evaluation, a damaged line, no whole context), kUnsupported (another
// version).
RunFile read_run(const std::string& path);

// Methods and ratios of one task under one model and setting.
struct ReportTask {
  std::string model;
  std::string task;
  std::string group;
  std::string setting;  // data and options that tell it from other runs: "chunk_tokens 512"
  std::vector<std::string> metrics;
  std::vector<VariantSummary> variants;  // "full" first, then by method and ratio
};

// A method at one ratio over the tasks of a model. Data of several lengths count as several tasks.
struct RelativeRow {
  std::string model;
  std::string setting;  // options that differ from what most runs have
  std::string method;
  double ratio = 1;
  double mean = 0;  // of the tasks' relative performance
  std::vector<std::string> tasks;
};

struct Report {
  std::vector<ReportTask> tasks;      // by model, task, setting, in the order given
  std::vector<RelativeRow> relative;  // by model, setting, method, ratio
  std::vector<std::string> notes;     // what a reader should know
};

Report make_report(std::span<const RunFile> runs);

// Stable fields: docs/eval.md.
Json to_json(const Report& report);

}  // namespace ctxzip::eval
