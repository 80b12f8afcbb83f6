// The steps from a text to a zipped context, one at a time: prefill once, score once a method, then
// compact at any number of budgets.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "cache/dense_cache.h"
#include "ctxzip/zip.h"
#include "engine/context_state.h"
#include "engine/graph_runner.h"
#include "engine/self_check.h"
#include "score/kvzip.h"
#include "score/scores.h"

namespace ctxzip {

// A tokenised document with its prompt layout, and how it will be scored.
struct ZipPlan {
  PromptLayout layout;
  std::vector<Token> context;
  int64_t chunk_tokens = 0;  // may be shorter than asked, to fit the trained length
  bool too_short = false;    // kept whole: there is nothing to gain

  int64_t n_prefix() const { return static_cast<int64_t>(layout.prefix.size()); }
  int64_t n_context() const { return static_cast<int64_t>(context.size()); }
  int64_t n_positions() const { return n_prefix() + n_context(); }
};

// Contexts below this are kept whole.
constexpr int64_t kShortestCompressed = 32;

// Throws Error: kInvalidArgument (options, empty text), kTooLong.
ZipPlan plan_zip(const detail::ModelState& model, std::string_view text, const ZipOptions& options);
// For token ids that need no tokenizer.
ZipPlan plan_zip(const detail::ModelState& model, PromptLayout layout, std::vector<Token> context,
                 const ZipOptions& options);

// Not thread-safe. Throws Error{kCancelled, kOutOfMemory} from every step.
class Zipper {
 public:
  Zipper(const Model& model, ZipPlan plan, const ZipOptions& options);

  void prefill();
  // Of the evictable pairs; computed on first use.
  const Scores& scores(Method method);
  // The rows a budget keeps; a quality budget is searched with the self-check.
  KeepSet select(Method method, const Budget& budget, Allocation allocation);

  // The zipped context, with its measured loss if the options ask for it. take() consumes the full
  // cache layer by layer; copy() leaves it for other budgets.
  Context take(Method method, Allocation allocation, KeepSet kept);
  Context copy(Method method, Allocation allocation, const KeepSet& kept);

  const ZipPlan& plan() const { return plan_; }
  // Everything that was prefilled; valid until take().
  FullRows full_rows() { return {state().hp.layers, full_, frozen_window(), plan_.n_prefix()}; }
  double prefill_seconds() const { return prefill_s_; }
  double score_seconds() const { return score_s_; }
  double compact_seconds() const { return compact_s_; }

 private:
  const detail::ModelState& state() const { return *model_.state(); }
  void score_by_reconstruction(Scores& scores);
  KeepSet search_quality(Method method, double bound, Allocation allocation);
  const SelfCheck& full_check();
  // The windows at the context's end; what they are made of is given back.
  const ZippedRows& frozen_window();
  Context finish(Method method, Allocation allocation, ZippedRows kept);
  void report_progress(Stage stage, int64_t done, int64_t total) const;

  Model model_;
  ZipPlan plan_;
  ZipOptions options_;
  std::unique_ptr<GraphRunner> runner_;
  DenseCache full_;    // global layers
  DenseCache window_;  // local layers: what the newest token's window still shows, at least
  std::optional<ZippedRows> frozen_window_;
  std::map<Method, Scores> scores_;
  SelfCheckProbes probes_;
  std::optional<SelfCheck> full_check_;
  double prefill_s_ = 0;
  double score_s_ = 0;
  double check_s_ = 0;
  double compact_s_ = 0;
};

}  // namespace ctxzip
