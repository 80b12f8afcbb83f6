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
#include "engine/finish.h"
#include "engine/graph_runner.h"
#include "engine/self_check.h"
#include "engine/zip_plan.h"
#include "score/kvzip.h"
#include "score/method_table.h"
#include "score/scores.h"

namespace ctxzip {

// Not thread-safe. Throws Error{kCancelled, kOutOfMemory} from every step.
class Zipper {
 public:
  Zipper(const Model& model, ZipPlan plan, const ZipOptions& options);

  // Notes down what the options' method wants to know of the prefill's attention.
  void prefill();
  // Of the evictable pairs; computed on first use, for all methods but those of head scores. A
  // method that looks at the prefill's attention and is not the options' own repeats the prefill
  // (the same rows come out).
  const Scores& scores(Method method);
  // The same for any variant of KVzip; nothing is remembered.
  Scores reconstruction_scores(const ReconVariant& variant);
  // The rows a budget keeps; a quality budget is searched with the self-check.
  KeepSet select(Method method, const Budget& budget, Allocation allocation);

  // The zipped context, with its measured loss if the options ask for it. take() consumes the full
  // cache layer by layer; copy() leaves it for other budgets, and for other row types than that of
  // the options.
  Context take(Method method, Allocation allocation, KeepSet kept);
  Context copy(Method method, Allocation allocation, const KeepSet& kept,
               std::optional<KvType> kv = {});

  const ZipPlan& plan() const { return plan_; }
  // Everything that was prefilled; valid until take().
  FullRows full_rows() { return {state().hp.layers, full_, frozen_window(), plan_.n_prefix()}; }
  const RunFigures& figures() const { return figures_; }

 private:
  const detail::ModelState& state() const { return *model_.state(); }
  void run_prefill(Stage stage, const ScoreSink* score, const QuerySink* queries);
  // Prefills, and computes scores that are made from the prefill's attention.
  Scores observed_scores(Method method, Stage stage);
  Scores place_scores(Method method) const;
  KeepSet keep(Method method, int64_t n_keep, Allocation allocation);
  KeepSet search_quality(Method method, double bound, Allocation allocation);
  const SelfCheck& full_check();
  // Windows and states at the context's end; what windows are made of is given back.
  const FrozenLayers& frozen_window();
  Context finish(Method method, Allocation allocation, ZippedRows kept);
  void report_progress(Stage stage, int64_t done, int64_t total) const;

  Model model_;
  ZipPlan plan_;
  ZipOptions options_;
  std::unique_ptr<GraphRunner> runner_;
  DenseCache full_;    // global layers
  DenseCache window_;  // local layers: what the newest token's window still shows, at least
  StateTrack states_;  // recurrent layers
  std::optional<FrozenLayers> frozen_window_;
  std::map<Method, Scores> scores_;  // by MethodTraits::scores_of
  SelfCheckProbes probes_;
  std::optional<SelfCheck> full_check_;
  RunFigures figures_;
};

}  // namespace ctxzip
