#include "attention/state_nodes.h"

#include <algorithm>

#include "attention/custom_node.h"
#include "core/fail.h"

namespace ctxzip {

struct StateNodes::Layer {
  StateNodes* owner;
  int64_t index;  // among the recurrent layers
};

StateNodes::StateNodes(const LayerMap& layers, int64_t state_size) : state_size_(state_size) {
  for (int64_t layer = 0; layer < layers.n_layer(); ++layer) {
    layers_.push_back(std::make_unique<Layer>(Layer{this, layers.index(layer)}));
  }
}

StateNodes::~StateNodes() = default;

ggml_tensor* StateNodes::state_before(ggml_context* context, int64_t layer) {
  return custom_node(context, state_size_, 1, 1, {}, load_node,
                     layers_[static_cast<size_t>(layer)].get());
}

void StateNodes::keep_state(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                            std::initializer_list<ggml_tensor*> parts) {
  int64_t n = 0;
  for (const ggml_tensor* part : parts) {
    CHECK(part->type == GGML_TYPE_F32 && ggml_is_contiguous(part));
    n += ggml_nelements(part);
  }
  CHECK(n == state_size_);
  ggml_build_forward_expand(graph, custom_node(context, 1, 1, 1, parts, keep_node,
                                               layers_[static_cast<size_t>(layer)].get()));
}

void StateNodes::load_node(ggml_tensor* dst, int thread, int n_threads, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  const RecurrentStates* before = layer.owner->step_.before;
  const int64_t begin = dst->ne[0] * thread / n_threads;
  const int64_t end = dst->ne[0] * (thread + 1) / n_threads;
  float* to = static_cast<float*>(dst->data);
  if (before == nullptr) {
    std::fill(to + begin, to + end, 0.0f);
  } else {
    const float* from = before->layer(layer.index);
    std::copy(from + begin, from + end, to + begin);
  }
}

void StateNodes::keep_node(ggml_tensor* dst, int thread, int n_threads, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  RecurrentStates* after = layer.owner->step_.after;
  if (after == nullptr) return;
  float* to = after->layer(layer.index);
  for (int part = 0; part < GGML_MAX_SRC && dst->src[part] != nullptr; ++part) {
    const int64_t n = ggml_nelements(dst->src[part]);
    const auto* from = static_cast<const float*>(dst->src[part]->data);
    std::copy(from + n * thread / n_threads, from + n * (thread + 1) / n_threads,
              to + n * thread / n_threads);
    to += n;
  }
}

}  // namespace ctxzip
