#include "model/arch/blocks.h"

namespace ctxzip::arch {
namespace {

// Views into what the input projection gives for each token: gate | inputs, B, C | time steps.
struct Projected {
  ggml_tensor* gate;   // (n_tokens, n_inner)
  ggml_tensor* mixed;  // (n_tokens, n_conv)
  ggml_tensor* steps;  // (n_tokens, n_head)
};

struct Sizes {
  int64_t n_inner;
  int64_t n_conv;  // channels of the convolution: inputs, B and C
  explicit Sizes(const RecurrentSettings& shape)
      : n_inner(shape.n_head * shape.head_dim),
        n_conv(n_inner + 2 * shape.n_group * shape.state_dim) {}
};

Projected project(const LayerScope& at, ggml_tensor* x, const Sizes& sizes) {
  ggml_context* context = at.scope.context;
  ggml_tensor* all = linear(at.scope, x, layer_name(at.layer, "ssm_in"));
  const auto part = [&](int64_t first, int64_t n) {
    return ggml_view_2d(context, all, n, x->ne[1], all->nb[1],
                        static_cast<size_t>(first) * sizeof(float));
  };
  return {.gate = ggml_cont(context, part(0, sizes.n_inner)),
          .mixed = part(sizes.n_inner, sizes.n_conv),
          .steps =
              ggml_cont(context, part(sizes.n_inner + sizes.n_conv, at.scope.hp.recurrent.n_head))};
}

// Mamba2 (arXiv 2405.21060): S = exp(step A) S + step x B^T, and the output is S C + D x.
ggml_tensor* build(const LayerScope& at, ggml_tensor* x) {
  const GraphScope& scope = at.scope;
  ggml_context* context = scope.context;
  const RecurrentSettings& shape = scope.hp.recurrent;
  const Sizes sizes(shape);
  const int64_t n_tokens = x->ne[1];
  const int64_t n_taps = (shape.n_tap - 1) * sizes.n_conv;
  const auto weight = [&](const char* name) {
    return scope.weights.get(layer_name(at.layer, name));
  };
  const Projected in = project(at, x, sizes);
  ggml_tensor* state = at.seam.state_before(context, at.layer);
  ggml_tensor* taps = ggml_view_2d(context, state, shape.n_tap - 1, sizes.n_conv,
                                   static_cast<size_t>(shape.n_tap - 1) * sizeof(float), 0);
  ggml_tensor* mixed =
      convolve(context, in.mixed, weight("ssm_conv1d.weight"), weight("ssm_conv1d.bias"), taps);
  const auto part = [&](int64_t first, int64_t dim, int64_t n) {
    return ggml_view_3d(context, mixed, dim, n, n_tokens, static_cast<size_t>(dim) * sizeof(float),
                        mixed->nb[1], static_cast<size_t>(first) * sizeof(float));
  };
  ggml_tensor* values = part(0, shape.head_dim, shape.n_head);
  const int64_t n_shared = shape.n_group * shape.state_dim;
  ggml_tensor* b = part(sizes.n_inner, shape.state_dim, shape.n_group);
  ggml_tensor* c = part(sizes.n_inner + n_shared, shape.state_dim, shape.n_group);
  ggml_tensor* matrices =
      ggml_view_3d(context, state, shape.state_dim, shape.head_dim, shape.n_head,
                   static_cast<size_t>(shape.state_dim) * sizeof(float),
                   static_cast<size_t>(shape.state_dim * shape.head_dim) * sizeof(float),
                   static_cast<size_t>(n_taps) * sizeof(float));
  ggml_tensor* first = ggml_cast(context, ggml_arange(context, 0, 1, 1), GGML_TYPE_I32);
  ggml_tensor* both =
      ggml_ssm_scan(context, matrices, values, ggml_add(context, in.steps, weight("ssm_dt.bias")),
                    weight("ssm_a"), b, c, first, 1);
  const int64_t n_out = sizes.n_inner * n_tokens;
  ggml_tensor* after = ggml_view_1d(context, both, shape.state_dim * sizes.n_inner,
                                    static_cast<size_t>(n_out) * sizeof(float));
  at.seam.keep_state(context, scope.graph, at.layer, {taps, after});
  if (at.output_unused) return nullptr;
  ggml_tensor* out = ggml_reshape_3d(context, ggml_view_1d(context, both, n_out, 0), shape.head_dim,
                                     shape.n_head, n_tokens);
  out = ggml_add(context, out, ggml_mul(context, values, weight("ssm_d")));
  out = ggml_swiglu_split(context, in.gate, ggml_reshape_2d(context, out, sizes.n_inner, n_tokens));
  out = ggml_reshape_3d(context, out, sizes.n_inner / shape.n_group, shape.n_group, n_tokens);
  out = rms_norm(scope, out, layer_name(at.layer, "ssm_norm.weight"));
  return ggml_reshape_2d(context, out, sizes.n_inner, n_tokens);
}

void add_weights(const Hyperparameters& hp, const DecoderStyle&, LayerWeights& weights) {
  const RecurrentSettings& shape = hp.recurrent;
  const Sizes sizes(shape);
  weights.matrix("ssm_in", hp.n_embd, sizes.n_inner + sizes.n_conv + shape.n_head);
  weights.tensor("ssm_conv1d.weight", {shape.n_tap, sizes.n_conv, 1}, true);
  weights.vector("ssm_conv1d.bias", sizes.n_conv);
  weights.vector("ssm_dt.bias", shape.n_head);
  weights.tensor("ssm_a", {1, shape.n_head, 1}, true);  // -exp(A_log)
  weights.tensor("ssm_d", {1, shape.n_head, 1}, true);
  weights.tensor("ssm_norm.weight", {sizes.n_inner / shape.n_group, shape.n_group, 1}, true);
  weights.matrix("ssm_out", sizes.n_inner, hp.n_embd);
}

}  // namespace

const Mixer kStateSpace = {build, add_weights, "ssm_out"};

}  // namespace ctxzip::arch
