// Experiments on what is left of a cache, on models of latent attention (or, some, of keys) and
// texts of token ids: the figures of docs/results-vestigekv.md. A new one is its function and a
// line in experiment_table.cpp; logs, figures and reports are those of tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ctxzip/model.h"
#include "ctxzip/progress.h"
#include "eval/needle_text.h"
#include "eval/record.h"
#include "eval/run_log.h"

namespace ctxzip::eval {

struct ExperimentOptions {
  std::vector<std::string> methods = {};  // empty: the experiment's own
  std::vector<double> ratios = {};        // shares of rows to keep; empty: the experiment's own
  int64_t length = 2048;                  // tokens of a text
  int64_t n_contexts = 16;
  int64_t n_needles = 8;
  int64_t block_rows = 512;  // that sigma is made in
  uint64_t seed = 0;         // of the texts
};

struct Experiment {
  const char* name;
  const char* summary;
  std::vector<std::string> methods;  // by default
  const char* known_methods;         // all, for people
  std::vector<double> ratios;        // by default
  std::vector<std::string> metrics;
  bool latent_rows = true;  // needs latent attention, not only keys
  // Throws Error{kInvalidArgument} for a name it does not know.
  void (*check_method)(const std::string& method);
  // Ids of what one context is asked.
  std::vector<std::string> (*questions)(const Model& model, const ExperimentOptions& options);
  // Records of context `number`, in the order of plan_experiment().
  std::vector<AnswerRecord> (*run)(const Model& model, const ExperimentOptions& options,
                                   int64_t number, const CancelToken* cancel);
};

std::span<const Experiment> experiments();

// Everything an experiment consists of before it computes anything.
struct ExperimentRun {
  const Experiment& experiment;
  ExperimentOptions options;  // with the experiment's own where none were given
  Json header;
  RunPlan plan;
};

// "layer 1", ...: the attention layers.
std::vector<std::string> layer_names(const Model& model, const ExperimentOptions& options);

// Throws Error: kInvalidArgument (options), kUnsupported (a model that does not know the language
// of the texts, or has no latent rows).
ExperimentRun prepare_experiment(const Model& model, const Experiment& experiment,
                                 const ExperimentOptions& options);

// Computes what the log does not hold yet; `on_context` is called with the contexts done. Throws
// Error, kCancelled when stopped: the log then holds all whole contexts.
void execute_experiment(const Model& model, const ExperimentRun& run, RunLog& log,
                        const CancelToken* cancel,
                        const std::function<void(int64_t done)>& on_context);

// "512-3"
std::string context_id(const ExperimentOptions& options, int64_t number);
// Methods at each ratio, the full cache once; in the order given.
std::vector<std::pair<std::string, double>> experiment_variants(const ExperimentOptions& options);

// A text with three times as many needles as are measured: the queries of the first two thirds
// calibrate a recall, the others are asked.
constexpr int64_t kCalibratingNeedles = 2;  // for one that is measured
NeedleText calibrated_text(const ExperimentOptions& options, Draw& draw);
// An answer is intact that costs less than this above the full cache's, all tokens together.
constexpr double kIntactNats = 1;

// The experiments.
Experiment needle_experiment();
Experiment row_experiment();
Experiment recall_experiment();
Experiment stream_experiment();
Experiment continuation_experiment();

}  // namespace ctxzip::eval
