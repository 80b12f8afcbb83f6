// An analysis as files for people and as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/attention_analysis.h"
#include "eval/record.h"
#include "eval/refusals.h"
#include "eval/report_page.h"

namespace ctxzip::eval {

// What is shown of the attention.
struct AnalysisViews {
  bool sparsity = true;  // histograms of prefill and repeat
  bool maps = true;      // a picture of each task by layer, head and position
  bool overlap = true;   // each two tasks against each other
};

struct AnalysisResult {
  std::string model_name;
  std::optional<AttentionAnalysis> attention;
  AnalysisViews views;
  std::optional<RefusalRun> refusals;
};

// Every figure; docs/eval.md lists the fields.
Json to_json(const AnalysisResult& result);

// The figures for a terminal.
std::string analysis_text(const AnalysisResult& result);

// analysis.json, analysis.html (which holds the pictures too) and the pictures: sparsity.svg,
// map-TASK.png, overlap-X-Y.svg, refusals.svg.
std::vector<ReportFile> analysis_files(const AnalysisResult& result);

}  // namespace ctxzip::eval
