// What `ctxzip eval` prints at its end.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/json_output.h"
#include "ctxzip/model.h"
#include "eval/runner.h"
#include "eval/summary.h"

namespace ctxzip::cli {

struct EvalResult {
  const eval::EvalRun& run;
  std::string log;  // the JSONL file
  size_t n_contexts_before = 0;
  std::vector<std::string> warnings = {};
  std::vector<eval::VariantSummary> variants = {};
};

// Below kFewQuestions.
std::optional<std::string> few_questions_warning(int64_t n_questions);
// What a reader of the figures should know.
std::vector<std::string> eval_warnings(const eval::EvalRun& run, const ModelInfo& model);

// Of a finished run: most answers end at --max-tokens.
std::optional<std::string> cut_answers_warning(const std::vector<eval::VariantSummary>& variants);

// All tasks by groups: what is asked, the leading metric, the data needed.
std::string task_list();
Json task_list_json();

std::string eval_table(const EvalResult& result);
// Stable fields: docs/eval.md.
Json eval_json(const EvalResult& result);

}  // namespace ctxzip::cli
