#include "model/arch/blocks.h"

namespace ctxzip::arch {
namespace {

ggml_tensor* build(const LayerScope& at, ggml_tensor* x) {
  const GraphScope& scope = at.scope;
  const Hyperparameters& hp = scope.hp;
  const int64_t layer = at.layer;
  const auto heads = [&](const char* stem, int64_t n_head) {
    return ggml_reshape_3d(scope.context, linear(scope, x, layer_name(layer, stem)), hp.head_dim,
                           n_head, x->ne[1]);
  };
  ggml_tensor* q = heads("attn_q", hp.n_head);
  ggml_tensor* k = heads("attn_k", hp.n_kv_head);
  if (at.style.head_norm) {
    q = rms_norm(scope, q, layer_name(layer, "attn_q_norm.weight"));
    k = rms_norm(scope, k, layer_name(layer, "attn_k_norm.weight"));
  }
  const AttentionInput in = {.q = rotate_heads(scope, at.style, q, layer, at.inputs.positions),
                             .k = rotate_heads(scope, at.style, k, layer, at.inputs.positions),
                             .v = heads("attn_v", hp.n_kv_head),
                             .q_unrotated = q,
                             .hidden = x};
  return at.seam.attend(scope.context, scope.graph, layer, in, at.output_unused);
}

void add_weights(const Hyperparameters& hp, const DecoderStyle& style, LayerWeights& weights) {
  const int64_t n_q = hp.n_head * hp.head_dim;
  const int64_t n_kv = hp.n_kv_head * hp.head_dim;
  weights.matrix("attn_q", hp.n_embd, n_q);
  weights.matrix("attn_k", hp.n_embd, n_kv);
  weights.matrix("attn_v", hp.n_embd, n_kv);
  weights.matrix("attn_output", n_q, hp.n_embd);
  if (style.head_norm) {
    weights.vector("attn_q_norm.weight", hp.head_dim);
    weights.vector("attn_k_norm.weight", hp.head_dim);
  }
}

}  // namespace

const Mixer kGroupedAttention = {build, add_weights, "attn_output"};

}  // namespace ctxzip::arch
