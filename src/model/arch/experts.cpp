#include <cmath>

#include "model/arch/blocks.h"

namespace ctxzip::arch {

void add_expert_weights(const Hyperparameters& hp, int64_t layer, std::vector<WeightSpec>& specs) {
  const ExpertSettings& experts = hp.experts;
  const auto add = [&](const char* name, std::array<int64_t, 3> ne) {
    specs.push_back({layer_name(layer, name), ne, true, true});
  };
  add("ffn_gate_inp.weight", {hp.n_embd, experts.n_expert, 1});
  add("ffn_gate_exps.weight", {hp.n_embd, experts.n_ff, experts.n_expert});
  add("ffn_up_exps.weight", {hp.n_embd, experts.n_ff, experts.n_expert});
  add("ffn_down_exps.weight", {experts.n_ff, hp.n_embd, experts.n_expert});
}

ggml_tensor* expert_ffn(const GraphScope& scope, ggml_tensor* x, int64_t layer) {
  // As libllama: a sum of router weights this small would divide by almost nothing.
  constexpr float kSmallestSum = 6.103515625e-5f;
  ggml_context* context = scope.context;
  const ExpertSettings& experts = scope.hp.experts;
  const int64_t n_tokens = x->ne[1];
  const auto weight = [&](const char* name) { return scope.weights.get(layer_name(layer, name)); };
  ggml_tensor* shares =
      ggml_soft_max(context, ggml_mul_mat(context, weight("ffn_gate_inp.weight"), x));
  // (n_tokens, n_used): the chosen experts, and (n_tokens, n_used, 1) their shares.
  ggml_tensor* chosen = ggml_argsort_top_k(context, shares, static_cast<int>(experts.n_used));
  ggml_tensor* kept = ggml_get_rows(
      context, ggml_reshape_3d(context, shares, 1, experts.n_expert, n_tokens), chosen);
  kept = ggml_reshape_2d(context, kept, experts.n_used, n_tokens);
  ggml_tensor* sum = ggml_clamp(context, ggml_sum_rows(context, kept), kSmallestSum, INFINITY);
  kept = ggml_div(context, kept, sum);
  if (experts.weight_scale != 0 && experts.weight_scale != 1) {
    kept = ggml_scale(context, kept, experts.weight_scale);
  }
  kept = ggml_reshape_3d(context, kept, 1, experts.n_used, n_tokens);

  ggml_tensor* input = ggml_reshape_3d(context, x, scope.hp.n_embd, 1, n_tokens);
  const auto product = [&](const char* name, ggml_tensor* rows) {
    return ggml_mul_mat_id(context, weight(name), rows, chosen);
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
  return total;
}

}  // namespace ctxzip::arch
