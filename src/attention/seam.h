// The one seam between a model's graph and everything that knows about caches.
#pragma once

#include <cstdint>
#include <initializer_list>

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace ctxzip {

// What a layer gives to its attention; f32, contiguous.
struct AttentionInput {
  ggml_tensor* q;            // (n_tokens, n_head, head_dim), rotated
  ggml_tensor* k;            // (n_tokens, n_kv_head, head_dim), rotated
  ggml_tensor* v;            // as k; null for latent attention: values are the first part of k
  ggml_tensor* q_unrotated;  // as q; null for latent attention
  ggml_tensor* hidden;       // (n_tokens, n_embd): the normed input that all are projected from
};

class AttentionSeam {
 public:
  AttentionSeam();
  virtual ~AttentionSeam() = default;
  AttentionSeam(const AttentionSeam&) = delete;
  AttentionSeam& operator=(const AttentionSeam&) = delete;

  // Never given twice in a process: a graph built with one seam is known from one built with
  // another that later lies at the same address.
  uint64_t serial() const { return serial_; }

  // Called once for each attention layer, in order, while a graph is built. Stores k and v as the
  // newest rows and returns the attention output (n_tokens, n_head * value dimension). Returns null
  // when nothing after this layer's attention is wanted (the caller says `output_unused`, or the
  // seam knows that this pass ends here): then the builder stops, and whatever has to be computed
  // was added to the graph.
  virtual ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                              const AttentionInput& in, bool output_unused) = 0;

  // What a recurrent layer remembers of the tokens before the batch: (state size) values, f32.
  virtual ggml_tensor* state_before(ggml_context* context, int64_t layer) = 0;
  // And what it will remember after the batch: `parts` one after the other, f32 and contiguous.
  virtual void keep_state(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                          std::initializer_list<ggml_tensor*> parts) = 0;

 private:
  uint64_t serial_;
};

}  // namespace ctxzip
