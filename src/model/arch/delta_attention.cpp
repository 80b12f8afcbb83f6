#include "model/arch/blocks.h"

namespace ctxzip::arch {
namespace {

// Two small products in a row: down to head_dim values, up to all channels.
ggml_tensor* low_rank(const LayerScope& at, ggml_tensor* x, const char* down, const char* up) {
  return linear(at.scope, linear(at.scope, x, layer_name(at.layer, down)),
                layer_name(at.layer, up));
}

// Kimi Linear (arXiv 2510.26692), section 3: S = (I - beta k k^T) diag(exp g) S + beta k v^T, and
// the output is q^T S, with q and k of unit length.
ggml_tensor* build(const LayerScope& at, ggml_tensor* x) {
  const GraphScope& scope = at.scope;
  ggml_context* context = scope.context;
  const RecurrentSettings& shape = scope.hp.recurrent;
  const int64_t n_tokens = x->ne[1];
  const int64_t dim = shape.head_dim;
  const int64_t n_inner = dim * shape.n_head;
  const int64_t n_taps = (shape.n_tap - 1) * n_inner;
  const auto weight = [&](const char* name) {
    return scope.weights.get(layer_name(at.layer, name));
  };
  const auto heads = [&](ggml_tensor* rows) {
    return ggml_reshape_3d(context, rows, dim, shape.n_head, n_tokens);
  };
  ggml_tensor* state = at.seam.state_before(context, at.layer);
  ggml_tensor* taps[3];
  ggml_tensor* qkv[3];
  constexpr const char* kStems[3] = {"attn_q", "attn_k", "attn_v"};
  constexpr const char* kConvolutions[3] = {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight",
                                            "ssm_conv1d_v.weight"};
  for (int part = 0; part < 3; ++part) {
    const auto offset = static_cast<size_t>(part * n_taps) * sizeof(float);
    taps[part] = ggml_view_2d(context, state, shape.n_tap - 1, n_inner,
                              static_cast<size_t>(shape.n_tap - 1) * sizeof(float), offset);
    ggml_tensor* projected = linear(scope, x, layer_name(at.layer, kStems[part]));
    qkv[part] =
        heads(convolve(context, projected, weight(kConvolutions[part]), nullptr, taps[part]));
  }
  const float epsilon = scope.hp.norm_epsilon;
  ggml_tensor* decay =
      ggml_add(context, low_rank(at, x, "ssm_f_a", "ssm_f_b"), weight("ssm_dt.bias"));
  decay = ggml_mul(context, heads(ggml_softplus(context, decay)),
                   ggml_reshape_3d(context, weight("ssm_a"), 1, shape.n_head, 1));
  ggml_tensor* beta = ggml_sigmoid(context, linear(scope, x, layer_name(at.layer, "ssm_beta")));
  beta = ggml_reshape_3d(context, beta, 1, shape.n_head, n_tokens);
  ggml_tensor* matrices =
      ggml_view_3d(context, state, dim, dim, shape.n_head, static_cast<size_t>(dim) * sizeof(float),
                   static_cast<size_t>(dim * dim) * sizeof(float),
                   static_cast<size_t>(3 * n_taps) * sizeof(float));
  ggml_tensor* both = ggml_gated_delta_net(context, ggml_l2_norm(context, qkv[0], epsilon),
                                           ggml_l2_norm(context, qkv[1], epsilon), qkv[2], decay,
                                           beta, matrices, 1);
  const int64_t n_out = n_inner * n_tokens;
  ggml_tensor* after =
      ggml_view_1d(context, both, dim * n_inner, static_cast<size_t>(n_out) * sizeof(float));
  at.seam.keep_state(context, scope.graph, at.layer, {taps[0], taps[1], taps[2], after});
  if (at.output_unused) return nullptr;
  ggml_tensor* out = heads(ggml_view_1d(context, both, n_out, 0));
  out = rms_norm(scope, out, layer_name(at.layer, "ssm_norm.weight"));
  ggml_tensor* gate = ggml_sigmoid(context, low_rank(at, x, "ssm_g_a", "ssm_g_b"));
  return ggml_mul(context, ggml_reshape_2d(context, out, n_inner, n_tokens), gate);
}

void add_weights(const Hyperparameters& hp, const DecoderStyle&, LayerWeights& weights) {
  const RecurrentSettings& shape = hp.recurrent;
  const int64_t n_inner = shape.n_head * shape.head_dim;
  for (const char* stem : {"attn_q", "attn_k", "attn_v"}) weights.matrix(stem, hp.n_embd, n_inner);
  for (const char* name : {"ssm_conv1d_q.weight", "ssm_conv1d_k.weight", "ssm_conv1d_v.weight"}) {
    weights.tensor(name, {shape.n_tap, 1, n_inner}, true);
  }
  weights.matrix("ssm_f_a", hp.n_embd, shape.head_dim);
  weights.matrix("ssm_f_b", shape.head_dim, n_inner);
  weights.matrix("ssm_g_a", hp.n_embd, shape.head_dim);
  weights.matrix("ssm_g_b", shape.head_dim, n_inner);
  weights.matrix("ssm_beta", hp.n_embd, shape.n_head);
  weights.tensor("ssm_a", {1, shape.n_head, 1}, true);  // -exp(A_log)
  weights.vector("ssm_dt.bias", n_inner);
  weights.vector("ssm_norm.weight", shape.head_dim);
  weights.matrix("attn_output", n_inner, hp.n_embd);
}

}  // namespace

const Mixer kDeltaAttention = {build, add_weights, "attn_output"};

}  // namespace ctxzip::arch
