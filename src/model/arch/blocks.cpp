#include "model/arch/blocks.h"

#include <cmath>

#include "model/product.h"

namespace ctxzip::arch {
namespace {

AttentionInput project_qkv(const GraphScope& scope, const DecoderStyle& style, ggml_tensor* x,
                           int64_t layer, ggml_tensor* positions) {
  const Hyperparameters& hp = scope.hp;
  const auto heads = [&](const char* stem, int64_t n_head) {
    return ggml_reshape_3d(scope.context, linear(scope, x, layer_name(layer, stem)), hp.head_dim,
                           n_head, x->ne[1]);
  };
  ggml_tensor* q = heads("attn_q", hp.n_head);
  ggml_tensor* k = heads("attn_k", hp.n_kv_head);
  if (style.head_norm) {
    q = rms_norm(scope, q, layer_name(layer, "attn_q_norm.weight"));
    k = rms_norm(scope, k, layer_name(layer, "attn_k_norm.weight"));
  }
  return {.q = rotate(scope, style, q, layer, positions),
          .k = rotate(scope, style, k, layer, positions),
          .v = heads("attn_v", hp.n_kv_head),
          .q_unrotated = q,
          .hidden = x};
}

// down(act(gate x) * up x)
ggml_tensor* gated_ffn(const GraphScope& scope, const DecoderStyle& style, ggml_tensor* x,
                       int64_t layer) {
  ggml_tensor* gate = linear(scope, x, layer_name(layer, "ffn_gate"));
  ggml_tensor* up = linear(scope, x, layer_name(layer, "ffn_up"));
  ggml_tensor* product = style.gelu ? ggml_geglu_split(scope.context, gate, up)
                                    : ggml_swiglu_split(scope.context, gate, up);
  return linear(scope, product, layer_name(layer, "ffn_down"));
}

ggml_tensor* logits_of(const GraphScope& scope, ggml_tensor* x) {
  ggml_context* context = scope.context;
  ggml_tensor* logits = linear(scope, rms_norm(scope, x, "output_norm.weight"), "output");
  const float cap = scope.hp.logit_softcap;
  if (cap > 0) {
    logits = ggml_scale(context, logits, 1 / cap);
    logits = ggml_scale(context, ggml_tanh(context, logits), cap);
  }
  ggml_build_forward_expand(scope.graph, logits);
  return logits;
}

}  // namespace

ggml_tensor* rotate(const GraphScope& scope, const DecoderStyle& style, ggml_tensor* rows,
                    int64_t layer, ggml_tensor* positions) {
  if (style.no_rope_step > 0 && (layer + 1) % style.no_rope_step == 0) return rows;
  const Hyperparameters& hp = scope.hp;
  const RopeSettings& rope = hp.rope;
  const bool local = hp.layers.is_local(layer);
  ggml_tensor* factors = style.rope_factors ? scope.weights.get("rope_freqs.weight") : nullptr;
  constexpr float kBetaFast = 32;
  constexpr float kBetaSlow = 1;
  return ggml_rope_ext(scope.context, rows, positions, factors, static_cast<int>(hp.head_dim),
                       rope.type, static_cast<int>(rope.original_context),
                       local ? rope.base_local : rope.base, local ? 1.0f : rope.scale,
                       rope.extrapolation, rope.attention_factor, kBetaFast, kBetaSlow);
}

std::string layer_name(int64_t layer, const char* name) {
  return "blk." + std::to_string(layer) + "." + name;
}

ggml_tensor* rms_norm(const GraphScope& scope, ggml_tensor* x, const std::string& weight) {
  return ggml_mul(scope.context, ggml_rms_norm(scope.context, x, scope.hp.norm_epsilon),
                  scope.weights.get(weight));
}

ggml_tensor* linear(const GraphScope& scope, ggml_tensor* x, const std::string& stem) {
  ggml_tensor* y = matrix_product(scope.context, scope.weights.get(stem + ".weight"), x);
  ggml_tensor* bias = scope.weights.get(stem + ".bias");
  return bias != nullptr ? ggml_add(scope.context, y, bias) : y;
}

ggml_tensor* build_decoder(const GraphScope& scope, const DecoderStyle& style,
                           const GraphInputs& inputs, AttentionSeam& seam) {
  const Hyperparameters& hp = scope.hp;
  ggml_context* context = scope.context;
  ggml_tensor* x = ggml_get_rows(context, scope.weights.get("token_embd.weight"), inputs.tokens);
  if (style.embedding_scale) {
    x = ggml_scale(context, x, std::sqrt(static_cast<float>(hp.n_embd)));
  }
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool last = layer == hp.n_layer - 1;
    const AttentionInput in =
        project_qkv(scope, style, rms_norm(scope, x, layer_name(layer, "attn_norm.weight")), layer,
                    inputs.positions);
    ggml_tensor* attended =
        seam.attend(context, scope.graph, layer, in, last && inputs.output_rows == nullptr);
    if (attended == nullptr) return nullptr;
    if (last) {
      attended = ggml_get_rows(context, attended, inputs.output_rows);
      x = ggml_get_rows(context, x, inputs.output_rows);
    }
    ggml_tensor* added = linear(scope, attended, layer_name(layer, "attn_output"));
    if (style.post_norm) {
      added = rms_norm(scope, added, layer_name(layer, "post_attention_norm.weight"));
    }
    x = ggml_add(context, added, x);
    ggml_tensor* normed = rms_norm(scope, x, layer_name(layer, "ffn_norm.weight"));
    added = hp.experts.n_expert > 0 ? expert_ffn(scope, normed, layer)
                                    : gated_ffn(scope, style, normed, layer);
    if (style.post_norm) {
      added = rms_norm(scope, added, layer_name(layer, "post_ffw_norm.weight"));
    }
    x = ggml_add(context, added, x);
  }
  return logits_of(scope, x);
}

std::vector<WeightSpec> decoder_weights(const GgufFile& file, const Hyperparameters& hp,
                                        const DecoderStyle& style) {
  const int64_t n_q = hp.n_head * hp.head_dim;
  const int64_t n_kv = hp.n_kv_head * hp.head_dim;
  const bool tied = file.find_tensor("output.weight") == nullptr;
  const std::string output_source = tied ? "token_embd.weight" : "output.weight";
  std::vector<WeightSpec> specs = {
      {"token_embd.weight", {hp.n_embd, hp.n_vocab, 1}},
      {"output_norm.weight", {hp.n_embd, 1, 1}},
      {"output.weight", {hp.n_embd, hp.n_vocab, 1}, true, true, output_source},
      {"output.bias", {hp.n_vocab, 1, 1}, false},
  };
  if (style.rope_factors) specs.push_back({"rope_freqs.weight", {hp.head_dim / 2, 1, 1}, false});
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const auto vector = [&](const char* name, bool required, int64_t n) {
      specs.push_back({layer_name(layer, name), {n, 1, 1}, required});
    };
    const auto matrix = [&](const std::string& stem, int64_t n_in, int64_t n_out) {
      specs.push_back(
          {layer_name(layer, (stem + ".weight").c_str()), {n_in, n_out, 1}, true, true});
      vector((stem + ".bias").c_str(), false, n_out);
    };
    vector("attn_norm.weight", true, hp.n_embd);
    vector("ffn_norm.weight", true, hp.n_embd);
    matrix("attn_q", hp.n_embd, n_q);
    matrix("attn_k", hp.n_embd, n_kv);
    matrix("attn_v", hp.n_embd, n_kv);
    matrix("attn_output", n_q, hp.n_embd);
    if (style.head_norm) {
      vector("attn_q_norm.weight", true, hp.head_dim);
      vector("attn_k_norm.weight", true, hp.head_dim);
    }
    if (style.post_norm) {
      vector("post_attention_norm.weight", true, hp.n_embd);
      vector("post_ffw_norm.weight", true, hp.n_embd);
    }
    if (hp.experts.n_expert > 0) {
      add_expert_weights(hp, layer, specs);
      continue;
    }
    matrix("ffn_gate", hp.n_embd, hp.n_ff);
    matrix("ffn_up", hp.n_embd, hp.n_ff);
    matrix("ffn_down", hp.n_ff, hp.n_embd);
  }
  return specs;
}

}  // namespace ctxzip::arch
