// The one seam between a model's graph and everything that knows about caches.
#pragma once

#include <cstdint>

struct ggml_cgraph;
struct ggml_context;
struct ggml_tensor;

namespace ctxzip {

// What a layer gives to its attention; f32, contiguous.
struct AttentionInput {
  ggml_tensor* q;            // (n_tokens, n_head, head_dim), rotated
  ggml_tensor* k;            // (n_tokens, n_kv_head, head_dim), rotated
  ggml_tensor* v;            // (n_tokens, n_kv_head, head_dim)
  ggml_tensor* q_unrotated;  // as q
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

  // Called once for each layer, in order, while a graph is built. Stores k and v as the newest rows
  // and returns the attention output (n_tokens, n_head * head_dim). Returns null when nothing after
  // this layer's attention is wanted (the caller says `output_unused`, or the seam knows that this
  // pass ends here): then the builder stops, and whatever has to be computed was added to the
  // graph.
  virtual ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                              const AttentionInput& in, bool output_unused) = 0;

 private:
  uint64_t serial_;
};

}  // namespace ctxzip
