// The seam on CPU: custom ggml nodes append -> attend -> (merge | score), and moments of queries,
// over rows in engine memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/score_sink.h"
#include "attention/seam.h"
#include "attention/segment_table.h"
#include "attention/state_nodes.h"
#include "cache/dense_cache.h"
#include "kernels/attention.h"

namespace ctxzip {

// Where the rows of a batch are written; rows before first_row are part of the own segment.
struct OwnRows {
  DenseCache* cache = nullptr;
  int64_t first_row = 0;
};

struct AppendTarget {
  OwnRows global;
  OwnRows local = {};  // unused by models without local layers
  // Every layer writes to layer 0 of its cache: a pass whose own rows nobody needs afterwards holds
  // one layer's rows at a time.
  bool one_layer = false;
  StateStep states = {};
};

struct AttentionSetup {
  const AttentionKernels* kernels = nullptr;
  LayerMap layers;
  AttentionShape shape;
  int64_t n_kv_head = 0;
  int64_t state_size = 0;  // values of a recurrent layer's state
  int n_threads = 1;
};

// Not thread-safe: one graph at a time. The object and everything it points to must outlive the
// graphs built with it.
class CacheAttention final : public AttentionSeam {
 public:
  // `table`: the rows before this batch. The batch's own rows (causal) come as segment `own_place`
  // among them. `score` and `queries` may be null; neither looks at local layers.
  CacheAttention(const AttentionSetup& setup, const SegmentTable& table, int own_place,
                 const ScoreSink* score, const QuerySink* queries = nullptr);
  ~CacheAttention() override;

  // Before each run: where its rows go. Several targets: the batch has one token for each, which
  // sees the table's rows and those of its own target.
  void set_targets(std::span<const AppendTarget> targets);

  ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                      const AttentionInput& in, bool output_unused) override;
  ggml_tensor* state_before(ggml_context* context, int64_t layer) override {
    return states_.state_before(context, layer);
  }
  void keep_state(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                  std::initializer_list<ggml_tensor*> parts) override {
    states_.keep_state(context, graph, layer, parts);
  }

  // Decode graphs hold partial results for this many own rows; a graph built for fewer must be
  // built anew.
  int64_t own_row_capacity() const { return own_row_capacity_; }

 private:
  struct Layer;
  // Work of a decode step: a block of a segment's rows, for one lane or for all.
  struct BlockItem {
    int64_t segment;
    int64_t kv_head;
    int64_t block;
    int64_t lane;
  };
  static void append_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void tile_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void block_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void merge_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void score_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void moments_node(ggml_tensor* dst, int thread, int n_threads, void* data);

  void build_score(ggml_context* context, ggml_cgraph* graph, Layer& layer,
                   const AttentionInput& in, ggml_tensor* attended);
  int64_t n_segments() const { return table_.size() + 1; }
  int64_t n_lanes() const { return static_cast<int64_t>(targets_.size()); }
  const OwnRows& own(const Layer& layer, int64_t lane = 0) const;
  // Own rows: those before the batch and the first n_own of it.
  Segment segment(int64_t index, const Layer& layer, int64_t kv_head, int64_t n_own,
                  int64_t lane = 0) const;
  // Rows of a segment that a window no longer shows to the batch's first token; may be negative.
  int64_t hidden_rows(int64_t index, const Layer& layer, int64_t kv_head, int64_t lane = 0) const;
  // Blocks that a decode step splits the rows of a segment into, for the lane that has most.
  int64_t segment_blocks(int64_t index, const Layer& layer, int64_t kv_head) const;
  // All lanes take the rows of this segment in one reading.
  bool is_shared(int64_t index, const Layer& layer) const;
  void attend_rows(const Layer& layer, const ggml_tensor* q, const BlockItem& item, float* partials,
                   int thread);
  // Queries of all lanes for one KV head: (lane, group, head_dim).
  const float* lane_queries(const ggml_tensor* q, int64_t kv_head, int thread);
  // The rows that are scored.
  Segment scored_columns(const Layer& layer, int64_t kv_head, int64_t n_tokens) const;
  std::byte* scratch(int thread) const;
  // The first of the batch's tokens that a sink which starts at own row `first_query` looks at.
  int64_t first_token(const Layer& layer, int64_t first_query) const;

  AttentionSetup setup_;
  const SegmentTable& table_;
  int own_place_;
  const ScoreSink* score_;
  const QuerySink* queries_;
  StateNodes states_;
  std::vector<AppendTarget> targets_;  // one a lane
  int64_t own_row_capacity_ = 0;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<float> lse_;           // (kv_head, token, group), one layer at a time
  std::vector<float> lane_queries_;  // (thread, lane, group, head_dim)
  std::vector<float> weighted_;      // (thread, n_tokens + columns of the segment): KVzip+
  size_t weighted_stride_ = 0;
  std::unique_ptr<std::byte[]> scratch_;
  size_t scratch_stride_ = 0;
  std::atomic<int64_t> next_attend_{
      0};  // work items are handed out; which thread takes one does not matter
  std::atomic<int64_t> next_score_{0};
};

}  // namespace ctxzip
