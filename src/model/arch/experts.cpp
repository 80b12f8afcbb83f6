#include <cmath>

#include "model/arch/blocks.h"

namespace ctxzip::arch {
namespace {

// `ranked` (n_tokens, n_expert) with -inf for the experts outside of each token's best groups. A
// group is as good as its two best experts together (arXiv 2412.19437, section 2.1.2).
ggml_tensor* within_best_groups(ggml_context* context, ggml_tensor* ranked,
                                const ExpertSettings& experts) {
  const int64_t n_tokens = ranked->ne[1];
  const int64_t n_member = experts.n_expert / experts.n_group;
  ggml_tensor* groups = ggml_reshape_3d(context, ranked, n_member, experts.n_group, n_tokens);
  ggml_tensor* two = ggml_get_rows(
      context, ggml_reshape_4d(context, ranked, 1, n_member, experts.n_group, n_tokens),
      ggml_argsort_top_k(context, groups, 2));
  ggml_tensor* worth =
      ggml_sum_rows(context, ggml_reshape_3d(context, two, 2, experts.n_group, n_tokens));
  ggml_tensor* best =
      ggml_argsort_top_k(context, ggml_reshape_2d(context, worth, experts.n_group, n_tokens),
                         static_cast<int>(experts.n_group_used));
  ggml_tensor* nobody = ggml_fill(context, groups, -INFINITY);
  ggml_tensor* members = ggml_get_rows(context, groups, best);
  return ggml_reshape_2d(context, ggml_set_rows(context, nobody, members, best), experts.n_expert,
                         n_tokens);
}

// What each chosen expert counts: (n_tokens, n_used, 1). `chosen` gets their numbers, (n_tokens,
// n_used).
ggml_tensor* route(const GraphScope& scope, ggml_tensor* x, int64_t layer, ggml_tensor*& chosen) {
  // As libllama: a sum of router weights this small would divide by almost nothing.
  constexpr float kSmallestSum = 6.103515625e-5f;
  ggml_context* context = scope.context;
  const ExpertSettings& experts = scope.hp.experts;
  const int64_t n_tokens = x->ne[1];
  ggml_tensor* shares =
      ggml_mul_mat(context, scope.weights.get(layer_name(layer, "ffn_gate_inp.weight")), x);
  shares = experts.sigmoid ? ggml_sigmoid(context, shares) : ggml_soft_max(context, shares);
  // A bias changes who is chosen, not what they count.
  ggml_tensor* bias = scope.weights.get(layer_name(layer, "exp_probs_b.bias"));
  ggml_tensor* ranked = bias != nullptr ? ggml_add(context, shares, bias) : shares;
  if (experts.n_group > 1) ranked = within_best_groups(context, ranked, experts);
  chosen = ggml_argsort_top_k(context, ranked, static_cast<int>(experts.n_used));
  ggml_tensor* kept = ggml_get_rows(
      context, ggml_reshape_3d(context, shares, 1, experts.n_expert, n_tokens), chosen);
  if (experts.normalised) {
    kept = ggml_reshape_2d(context, kept, experts.n_used, n_tokens);
    ggml_tensor* sum = ggml_clamp(context, ggml_sum_rows(context, kept), kSmallestSum, INFINITY);
    kept = ggml_div(context, kept, sum);
  }
  if (experts.weight_scale != 0 && experts.weight_scale != 1) {
    kept = ggml_scale(context, kept, experts.weight_scale);
  }
  return ggml_reshape_3d(context, kept, 1, experts.n_used, n_tokens);
}

}  // namespace

void add_expert_weights(const Hyperparameters& hp, LayerWeights& weights) {
  const ExpertSettings& experts = hp.experts;
  weights.experts("ffn_gate_inp.weight", hp.n_embd, experts.n_expert, 1);
  weights.vector("exp_probs_b.bias", experts.n_expert, false);
  weights.experts("ffn_gate_exps.weight", hp.n_embd, experts.n_ff, experts.n_expert);
  weights.experts("ffn_up_exps.weight", hp.n_embd, experts.n_ff, experts.n_expert);
  weights.experts("ffn_down_exps.weight", experts.n_ff, hp.n_embd, experts.n_expert);
  if (experts.n_ff_shared == 0) return;
  weights.matrix("ffn_gate_shexp", hp.n_embd, experts.n_ff_shared);
  weights.matrix("ffn_up_shexp", hp.n_embd, experts.n_ff_shared);
  weights.matrix("ffn_down_shexp", experts.n_ff_shared, hp.n_embd);
}

ggml_tensor* expert_ffn(const GraphScope& scope, ggml_tensor* x, int64_t layer) {
  ggml_context* context = scope.context;
  const ExpertSettings& experts = scope.hp.experts;
  const int64_t n_tokens = x->ne[1];
  ggml_tensor* chosen = nullptr;
  ggml_tensor* kept = route(scope, x, layer, chosen);
  ggml_tensor* input = ggml_reshape_3d(context, x, scope.hp.n_embd, 1, n_tokens);
  const auto product = [&](const char* name, ggml_tensor* rows) {
    return ggml_mul_mat_id(context, scope.weights.get(layer_name(layer, name)), rows, chosen);
  };
  ggml_tensor* hidden = ggml_swiglu_split(context, product("ffn_gate_exps.weight", input),
                                          product("ffn_up_exps.weight", input));
  // (n_tokens, n_used, n_embd), weighted
  ggml_tensor* outputs = ggml_mul(context, product("ffn_down_exps.weight", hidden), kept);
  ggml_tensor* total = nullptr;
  for (int64_t at = 0; at < experts.n_used; ++at) {
    ggml_tensor* one = ggml_view_2d(context, outputs, scope.hp.n_embd, n_tokens, outputs->nb[2],
                                    static_cast<size_t>(at) * outputs->nb[1]);
    total = total == nullptr ? ggml_cont(context, one) : ggml_add(context, total, one);
  }
  if (experts.n_ff_shared == 0) return total;
  return ggml_add(context, total, gated_ffn(scope, x, layer, "_shexp", false));
}

}  // namespace ctxzip::arch
