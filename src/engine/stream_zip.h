// The streaming schedule: a text is prefilled, scored and cut chunk by chunk, so that neither time
// nor memory grows faster than what is kept.
#pragma once

#include <cstdint>
#include <memory>

#include "cache/surviving_rows.h"
#include "engine/finish.h"
#include "engine/graph_runner.h"
#include "engine/self_check.h"
#include "engine/zip_plan.h"
#include "score/kvzip.h"

namespace ctxzip {

// Not thread-safe. Throws Error{kCancelled, kOutOfMemory}.
class StreamZipper {
 public:
  StreamZipper(const Model& model, ZipPlan plan, const ZipOptions& options);

  // All of it, once.
  Context run();

 private:
  const detail::ModelState& state() const { return *model_.state(); }
  // Where the chunk that starts at context position `begin` starts in its store.
  int64_t first_row(int64_t begin) const { return begin == 0 ? plan_.n_prefix() : 0; }
  void prefill(int64_t begin, int64_t end);
  void score(int64_t begin, int64_t end);
  // Where the pass stands that scores a chunk up to `end`: behind the whole text, as in two-pass
  // and as questions do, so that scores of all chunks can be compared; right behind the chunk
  // where sliding windows or states hold what comes just before.
  int64_t pass_position(int64_t end) const;
  void evict(int64_t begin, int64_t end);
  // What sessions would see now, and before eviction all rows of the chunk.
  SegmentTable rows_now(int64_t begin, bool with_chunk) const;
  // Adds the losses of the probes that lie in the chunk.
  struct Losses {
    NllSum reconstruction;
    NllSum held_out;
  };
  void check(int64_t begin, int64_t end, bool with_chunk, Losses& losses);
  void report_progress(Stage stage, int64_t done) const;

  Model model_;
  ZipPlan plan_;
  ZipOptions options_;
  ContextSize size_;
  int64_t n_keep_ = 0;  // of all pairs, at the end
  std::unique_ptr<GraphRunner> runner_;
  RepeatPrompts prompts_;
  DenseCache chunk_;   // global layers: the chunk's rows, after the prefix's in the first chunk
  DenseCache window_;  // local layers
  StateTrack states_;  // recurrent layers
  FrozenLayers frozen_window_;
  SurvivingRows survivors_;
  Scores scores_;
  SelfCheckProbes probes_;
  Losses before_;  // with the chunk's rows all there
  Losses after_;   // right after its eviction
  RunFigures figures_;
};

}  // namespace ctxzip
