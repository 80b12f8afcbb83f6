// The recurrent layers' half of a seam: custom nodes that copy their states from and to engine
// memory.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

#include "cache/layer_map.h"
#include "cache/recurrent_states.h"

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace ctxzip {

// The states of recurrent layers around a batch; null `before` stands for the start of a text, null
// `after` for states that nobody needs. They may not be the same.
struct StateStep {
  const RecurrentStates* before = nullptr;
  RecurrentStates* after = nullptr;
};

// Must outlive the graphs built with it.
class StateNodes {
 public:
  StateNodes(const LayerMap& layers, int64_t state_size);
  StateNodes(const StateNodes&) = delete;
  StateNodes& operator=(const StateNodes&) = delete;
  ~StateNodes();

  // Before each run.
  void set_step(const StateStep& step) { step_ = step; }
  // As AttentionSeam's functions of these names.
  ggml_tensor* state_before(ggml_context* context, int64_t layer);
  void keep_state(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                  std::initializer_list<ggml_tensor*> parts);

 private:
  struct Layer;
  static void load_node(ggml_tensor* dst, int thread, int n_threads, void* data);
  static void keep_node(ggml_tensor* dst, int thread, int n_threads, void* data);

  int64_t state_size_;
  StateStep step_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace ctxzip
