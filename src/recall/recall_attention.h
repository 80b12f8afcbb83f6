// The seam of a stream that grows under VestigeKV: the rows of each MLA layer lie in a RecallCache.
//
// A batch of several tokens attends to every row, exactly, and its rows join the caches once it has
// succeeded (commit). One token appends its row and attends through the layer's DecodeStep, a node
// a phase, so that ggml's barriers lie between them; nothing is allocated then.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention/cache_attention.h"
#include "attention/state_nodes.h"
#include "recall/decode_step.h"
#include "recall/recall_cache.h"

namespace ctxzip {

// Not thread-safe: one graph at a time. Must outlive the graphs built with it.
class RecallAttention final : public AttentionSeam {
 public:
  // `setup` is of a model whose global layers all have latent attention, and none local ones.
  // Batches have at most max_batch tokens. Throws as RecallCache.
  RecallAttention(const AttentionSetup& setup, int64_t capacity, int64_t max_batch,
                  const RecallOptions& options);
  ~RecallAttention() override;

  // Of the MLA layers, in order.
  int64_t n_layer() const { return static_cast<int64_t>(layers_.size()); }
  RecallCache& cache(int64_t index);
  const RecallCache& cache(int64_t index) const;
  DecodeStep& step(int64_t index);
  const DecodeStep& step(int64_t index) const;
  // The last decode step's queries (head, row_dim), unscaled.
  const float* queries(int64_t index) const;

  // Before each run.
  void begin(const StateStep& states);
  // After a run of n tokens that succeeded. Throws what RecallCache::append does.
  void commit(int64_t n_tokens);
  // After one that did not: no row of it is left.
  void undo();

  ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                      const AttentionInput& in, bool output_unused) override;
  ggml_tensor* state_before(ggml_context* context, int64_t layer) override {
    return states_.state_before(context, layer);
  }
  void keep_state(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                  std::initializer_list<ggml_tensor*> parts) override {
    states_.keep_state(context, graph, layer, parts);
  }

 private:
  struct Layer;
  template <int phase>
  static void phase_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void store_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void begin_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void tile_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  ggml_tensor* decode_nodes(ggml_context* context, Layer& layer, const AttentionInput& in,
                            int64_t n_out);
  std::byte* scratch(int thread) const;

  AttentionSetup setup_;
  StateNodes states_;
  std::vector<std::unique_ptr<Layer>> layers_;  // of the MLA layers
  Mapping scratch_;                             // (thread)
  size_t scratch_stride_ = 0;
  std::atomic<int64_t> next_tile_{0};
};

}  // namespace ctxzip
