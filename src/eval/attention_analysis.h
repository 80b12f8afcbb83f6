// What a model attends to of a text while it reads it, repeats it, answers questions about it and
// sums it up (arXiv 2505.23416, section 3.3).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxzip/model.h"
#include "ctxzip/zip.h"
#include "eval/score_statistics.h"
#include "score/scores.h"

namespace ctxzip::eval {

struct AnalysisOptions {
  // Each is a task "qa-1", "qa-2", ...; never empty.
  std::vector<std::string> questions = {"Which names does the text give, and of whom or what?",
                                        "Which numbers or dates does the text give, and of what?"};
  bool answers = true;          // false: no questions and no summary, only prefill and repeat
  bool source = true;           // one more scoring pass
  double ratio = 0.3;           // of a task's pairs, its best
  int64_t answer_tokens = 128;  // of an answer or summary, at most
  ZipOptions zip =
      {};  // chunk, system prompt, notices, cancelling; the rest is set by the analysis
};

// The largest softmax weight that each pair gets of one task's queries: for answers, those of the
// question and of the model's own answer with the full cache.
struct TaskAttention {
  std::string name;           // "prefill", "repeat", "qa-1", ..., "summary"
  std::string question = {};  // empty for prefill and repeat
  std::string answer = {};
  Scores weights = {};
  std::vector<uint8_t> best = {};  // (layer, kv_head, position): 1 for the best pairs
};

struct AttentionAnalysis {
  int64_t context_tokens = 0;
  int64_t chunk_tokens = 0;  // of the repeat
  double ratio = 0;
  std::vector<TaskAttention> tasks;   // prefill, repeat, and the others
  std::optional<SourceShare> source;  // of the repeat

  const TaskAttention& task(std::string_view name) const;  // which is there
};

// `on_step` is called before each step with its name: those of the tasks, and "source".
// Throws Error: kInvalidArgument (options), kUnsupported (a text too short to be scored, a model
// without a tokenizer), kTooLong, kOutOfMemory, kCancelled.
AttentionAnalysis analyse_attention(const Model& model, std::string_view text,
                                    const AnalysisOptions& options,
                                    const std::function<void(std::string_view)>& on_step = {});

}  // namespace ctxzip::eval
