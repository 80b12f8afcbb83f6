// Runs a model over one batch of tokens.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "attention/cache_attention.h"
#include "ctxzip/progress.h"
#include "model/model_state.h"

namespace ctxzip {

struct Batch {
  std::span<const Token> tokens;
  int64_t first_position = 0;
  // Tokens (ascending) whose logits are wanted; none: the pass stops after the last layer's
  // attention.
  std::span<const int32_t> output_rows;
  // Of each token, where they do not follow each other from first_position on.
  std::span<const int32_t> positions = {};
};

struct RunControl {
  const CancelToken* cancel = nullptr;
  // Called now and then on the calling thread with the share of the batch that is done, 0..1. What
  // it throws ends the run and comes out of run().
  std::function<void(double)> on_fraction = {};
};

// Owns graph memory. Not thread-safe; runs of all runners take turns (one compute lock per
// process). The model must outlive it.
class GraphRunner {
 public:
  explicit GraphRunner(const detail::ModelState& model);
  ~GraphRunner();
  GraphRunner(const GraphRunner&) = delete;
  GraphRunner& operator=(const GraphRunner&) = delete;

  // Returns the logits (n_outputs, n_vocab), valid until the next run. A graph of the same shape
  // with the same `seam` and `graph_key` is reused. Throws Error: kOutOfMemory, kCancelled (the
  // cache may hold part of the batch's rows beyond its n_rows then).
  std::span<const float> run(const Batch& batch, AttentionSeam& seam, int64_t graph_key,
                             const RunControl& control);

 private:
  struct Prepared;
  void prepare(const Batch& batch, AttentionSeam& seam, int64_t graph_key);

  const detail::ModelState& model_;
  ggml_backend_ptr backend_;
  ggml_gallocr_ptr allocator_;
  std::unique_ptr<Prepared> prepared_;
};

// Without segments yet, for rows of this model.
SegmentTable segment_table(const detail::ModelState& model);
// Attention of this model on CPU with its thread count and row type.
AttentionSetup attention_setup(const detail::ModelState& model);
// Of the stores for global and for local layers.
KvShape global_shape(const detail::ModelState& model);
KvShape local_shape(const detail::ModelState& model);
// Of its recurrent layers before the first token.
RecurrentStates first_states(const detail::ModelState& model);
// A store for one layer at a time: what a pass whose rows are dropped writes to.
KvShape one_layer_shape(const detail::ModelState& model);

}  // namespace ctxzip
