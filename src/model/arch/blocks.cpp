#include "model/arch/blocks.h"

#include <cmath>

namespace ctxzip::arch {

std::string layer_name(int64_t layer, const char* name) {
  return "blk." + std::to_string(layer) + "." + name;
}

ggml_tensor* rms_norm(const GraphScope& scope, ggml_tensor* x, const std::string& weight) {
  return ggml_mul(scope.context, ggml_rms_norm(scope.context, x, scope.hp.norm_epsilon),
                  scope.weights.get(weight));
}

ggml_tensor* linear(const GraphScope& scope, ggml_tensor* x, const std::string& stem) {
  ggml_tensor* y = ggml_mul_mat(scope.context, scope.weights.get(stem + ".weight"), x);
  ggml_tensor* bias = scope.weights.get(stem + ".bias");
  return bias != nullptr ? ggml_add(scope.context, y, bias) : y;
}

Qkv project_qkv(const GraphScope& scope, ggml_tensor* x, int64_t layer, ggml_tensor* positions,
                ggml_tensor* rope_factors) {
  const Hyperparameters& hp = scope.hp;
  const int64_t n_tokens = x->ne[1];
  const auto heads = [&](const char* stem, int64_t n_head) {
    return ggml_reshape_3d(scope.context, linear(scope, x, layer_name(layer, stem)), hp.head_dim,
                           n_head, n_tokens);
  };
  const auto rotate = [&](ggml_tensor* rows) {
    return ggml_rope_ext(
        scope.context, rows, positions, rope_factors, static_cast<int>(hp.head_dim), hp.rope_type,
        static_cast<int>(hp.n_ctx_train), hp.rope_base, hp.rope_scale, 0.0f, 1.0f, 32.0f, 1.0f);
  };
  return {.q = rotate(heads("attn_q", hp.n_head)),
          .k = rotate(heads("attn_k", hp.n_kv_head)),
          .v = heads("attn_v", hp.n_kv_head)};
}

ggml_tensor* swiglu(const GraphScope& scope, ggml_tensor* x, int64_t layer) {
  ggml_tensor* gate = linear(scope, x, layer_name(layer, "ffn_gate"));
  ggml_tensor* up = linear(scope, x, layer_name(layer, "ffn_up"));
  return linear(scope, ggml_swiglu_split(scope.context, gate, up), layer_name(layer, "ffn_down"));
}

ggml_tensor* build_decoder(const GraphScope& scope, ggml_cgraph* graph, const GraphInputs& inputs,
                           AttentionSeam& seam) {
  const Hyperparameters& hp = scope.hp;
  ggml_context* context = scope.context;
  ggml_tensor* rope_factors = scope.weights.get("rope_freqs.weight");
  ggml_tensor* x = ggml_get_rows(context, scope.weights.get("token_embd.weight"), inputs.tokens);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool last = layer == hp.n_layer - 1;
    const Qkv qkv = project_qkv(scope, rms_norm(scope, x, layer_name(layer, "attn_norm.weight")),
                                layer, inputs.positions, rope_factors);
    const bool output_unused = last && inputs.output_rows == nullptr;
    ggml_tensor* attended = seam.attend(context, graph, layer, qkv.q, qkv.k, qkv.v, output_unused);
    if (output_unused) return nullptr;
    if (last) {
      attended = ggml_get_rows(context, attended, inputs.output_rows);
      x = ggml_get_rows(context, x, inputs.output_rows);
    }
    x = ggml_add(context, x, linear(scope, attended, layer_name(layer, "attn_output")));
    x = ggml_add(context, x,
                 swiglu(scope, rms_norm(scope, x, layer_name(layer, "ffn_norm.weight")), layer));
  }
  x = rms_norm(scope, x, "output_norm.weight");
  ggml_tensor* logits = linear(scope, x, "output");
  ggml_build_forward_expand(graph, logits);
  return logits;
}

std::vector<WeightSpec> decoder_weights(const GgufFile& file, const Hyperparameters& hp) {
  const int64_t n_q = hp.n_head * hp.head_dim;
  const int64_t n_kv = hp.n_kv_head * hp.head_dim;
  const bool tied = file.find_tensor("output.weight") == nullptr;
  const std::string output_source = tied ? "token_embd.weight" : "output.weight";
  std::vector<WeightSpec> specs = {
      {"token_embd.weight", {hp.n_embd, hp.n_vocab}},
      {"output_norm.weight", {hp.n_embd, 1}},
      {"output.weight", {hp.n_embd, hp.n_vocab}, true, true, output_source},
      {"output.bias", {hp.n_vocab, 1}, false},
      {"rope_freqs.weight", {hp.head_dim / 2, 1}, false},
  };
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const auto vector = [&](const char* name, bool required, int64_t n) {
      specs.push_back({layer_name(layer, name), {n, 1}, required});
    };
    const auto matrix = [&](const std::string& stem, int64_t n_in, int64_t n_out) {
      specs.push_back({layer_name(layer, (stem + ".weight").c_str()), {n_in, n_out}, true, true});
      vector((stem + ".bias").c_str(), false, n_out);
    };
    vector("attn_norm.weight", true, hp.n_embd);
    vector("ffn_norm.weight", true, hp.n_embd);
    matrix("attn_q", hp.n_embd, n_q);
    matrix("attn_k", hp.n_embd, n_kv);
    matrix("attn_v", hp.n_embd, n_kv);
    matrix("attn_output", n_q, hp.n_embd);
    matrix("ffn_gate", hp.n_embd, hp.n_ff);
    matrix("ffn_up", hp.n_embd, hp.n_ff);
    matrix("ffn_down", hp.n_ff, hp.n_embd);
  }
  return specs;
}

}  // namespace ctxzip::arch
