// One context of a run: prefilled once, scored once a method, cut at every ratio and asked all its
// questions.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/zipper.h"
#include "eval/record.h"
#include "eval/runner.h"

namespace ctxzip::eval {

// `number`: of the context in the run.
ZipOptions zip_options(const RunOptions& options, size_t number, const RunHooks& hooks);
// With or without the model's chat template. Throws as plan_zip.
ZipPlan plan_context(const detail::ModelState& model, const EvalContext& context,
                     bool chat_template, const ZipOptions& options);

// Counts answers and tells the hooks.
class Progress {
 public:
  Progress(const RunHooks& hooks, int64_t total) : hooks_(hooks), total_(total) { report(); }
  void answered() {
    ++done_;
    report();
  }

 private:
  void report() const {
    if (hooks_.progress) hooks_.progress(done_, total_);
  }
  const RunHooks& hooks_;
  int64_t done_ = 0;
  int64_t total_;
};

// One context under all variants.
class ContextRun {
 public:
  ContextRun(const Model& model, const EvalRun& run, size_t number, const RunHooks& hooks)
      : model_(model),
        run_(run),
        context_(run.contexts[number]),
        number_(number),
        hooks_(hooks),
        zipper_(model,
                plan_context(*model.state(), context_, run.options.chat_template,
                             zip_options(run.options, number, hooks)),
                zip_options(run.options, number, hooks)) {}

  std::vector<AnswerRecord> records(Progress& progress) {
    std::vector<AnswerRecord> all;
    for (const Variant& variant : variants(run_.options)) ask_all(variant, progress, all);
    return all;
  }

 private:
  void ask_all(const Variant& variant, Progress& progress, std::vector<AnswerRecord>& all);
  // The context with only what a variant keeps, and the time of the steps to it.
  Context cut(const Variant& variant, const KeepSet& kept, RecordTimes& times);
  Context stream(const Variant& variant, RecordTimes& times);
  void ask_zipped(const Variant& variant, const Context& zipped, const RecordTimes& times,
                  std::span<const EvalQuestion> questions, Progress& progress,
                  std::vector<AnswerRecord>& all);
  KeepSet select(const Variant& variant);
  // When the question is known.
  KeepSet select_for(const Variant& variant, const EvalQuestion& question);

  const Model& model_;
  const EvalRun& run_;
  const EvalContext& context_;
  size_t number_;
  const RunHooks& hooks_;
  Zipper zipper_;
  std::map<Method, double> score_s_;
  double query_score_s_ = 0;  // since the last zip for a question
};

}  // namespace ctxzip::eval
