// Pieces that several architectures share; each adds nodes for one step of a transformer layer.
// Activations are f32 (n_tokens, n_embd).
#pragma once

#include <string>
#include <vector>

#include "model/architecture.h"

namespace ctxzip::arch {

struct GraphScope {
  const Hyperparameters& hp;
  const Weights& weights;
  ggml_context* context;
};

// "blk.3.attn_q.weight"
std::string layer_name(int64_t layer, const char* name);

// x / rms(x) * weight
ggml_tensor* rms_norm(const GraphScope& scope, ggml_tensor* x, const std::string& weight);

// weight x (+ bias where the file has one under the same stem)
ggml_tensor* linear(const GraphScope& scope, ggml_tensor* x, const std::string& stem);

struct Qkv {
  ggml_tensor* q;  // (n_tokens, n_head, head_dim), rotated
  ggml_tensor* k;  // (n_tokens, n_kv_head, head_dim), rotated
  ggml_tensor* v;  // (n_tokens, n_kv_head, head_dim)
};
Qkv project_qkv(const GraphScope& scope, ggml_tensor* x, int64_t layer, ggml_tensor* positions,
                ggml_tensor* rope_factors);

// down(silu(gate x) * up x)
ggml_tensor* swiglu(const GraphScope& scope, ggml_tensor* x, int64_t layer);

// Pre-norm decoder stack with SwiGLU from token ids to logits, as llama and qwen2 have it.
ggml_tensor* build_decoder(const GraphScope& scope, ggml_cgraph* graph, const GraphInputs& inputs,
                           AttentionSeam& seam);

// Weights of that stack; every projection may have a bias, `output` may be tied to the embedding.
std::vector<WeightSpec> decoder_weights(const GgufFile& file, const Hyperparameters& hp);

}  // namespace ctxzip::arch
