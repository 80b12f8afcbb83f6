// Runs a task: each context is prefilled once, scored once a method, really evicted at every ratio,
// and asked all its questions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ctxzip/model.h"
#include "ctxzip/progress.h"
#include "ctxzip/zip.h"
#include "eval/method.h"
#include "eval/record.h"
#include "eval/run_log.h"
#include "eval/task.h"

namespace ctxzip::eval {

// What decides the answers; all of it is in the log's header.
struct RunOptions {
  std::vector<const EvalMethod*> methods;
  std::vector<double> ratios;
  int64_t n_contexts = 0;                  // 0: all, or as many as the task's generator makes
  std::optional<int64_t> max_tokens = {};  // longest answer; absent: the task's
  uint64_t seed = 0;                       // of generators, random methods and intervals
  std::vector<int64_t> lengths = {};       // of generated contexts; empty: the task's
  std::string filler = {};                 // text file for generated contexts; empty: built-in
  bool skip_long = false;                  // leave out what the model has no room for
  Allocation allocation = Allocation::kGlobal;
  std::shared_ptr<const HeadScores> heads = {};  // of methods that need them
  ReconAttention recon_attention = ReconAttention::kLocal;
  // Streaming prefills anew for every ratio: what is left of a chunk depends on it.
  Schedule schedule = Schedule::kTwoPass;
  KvType kv = KvType::kF16;  // of zipped contexts; the full cache stays f16
  int64_t chunk_tokens = 2048;
  bool chat_template = true;  // false: document, newline, question, newline
};

struct RunHooks {
  // Answers done and to do in this call, which may have started with some contexts already done.
  std::function<void(int64_t done, int64_t total)> progress;
  LogFn notice;
  const CancelToken* cancel = nullptr;
};

// Everything a run consists of before it computes anything.
struct EvalRun {
  Task task;
  RunOptions options;
  std::vector<EvalContext> contexts;
  int64_t n_skipped = 0;   // questions of the data file without an answer
  int64_t n_long = 0;      // contexts left out because they are too long
  int64_t n_outgrown = 0;  // contexts with a question that has more tokens than they
  Json header = {};
  RunPlan plan = {};

  int64_t n_questions() const;
  std::vector<std::string> metric_names() const;
};

// Loads or makes the data, looks at every context and describes the run. `data_path` is empty for
// generated contexts. Throws Error: kInvalidArgument (options), kCorruptFile (an empty context),
// kTooLong (a context or question without room in the model), and as Task::load.
EvalRun prepare_run(const Model& model, const Task& task, const std::string& data_path,
                    const RunOptions& options);

// Methods x ratios; a method that keeps everything comes once. In the order given.
std::vector<Variant> variants(const RunOptions& options);

// Asks what the log does not hold yet. Throws Error, kCancelled when stopped: the log then holds
// all whole contexts.
void execute_run(const Model& model, const EvalRun& run, RunLog& log, const RunHooks& hooks);

}  // namespace ctxzip::eval
