#include "model/arch/blocks.h"

#include "model/product.h"

namespace ctxzip::arch {
namespace {

ggml_tensor* logits_of(const GraphScope& scope, ggml_tensor* x) {
  ggml_context* context = scope.context;
  ggml_tensor* logits = linear(scope, rms_norm(scope, x, "output_norm.weight"), "output");
  if (scope.hp.logit_scale != 1) logits = ggml_scale(context, logits, scope.hp.logit_scale);
  const float cap = scope.hp.logit_softcap;
  if (cap > 0) {
    logits = ggml_scale(context, logits, 1 / cap);
    logits = ggml_scale(context, ggml_tanh(context, logits), cap);
  }
  ggml_build_forward_expand(scope.graph, logits);
  return logits;
}

bool has_experts(const Hyperparameters& hp, int64_t layer) {
  return hp.experts.n_expert > 0 && layer >= hp.experts.n_leading_dense;
}

ggml_tensor* add_to_residual(const GraphScope& scope, ggml_tensor* added, ggml_tensor* x) {
  const float scale = scope.hp.residual_scale;
  if (scale != 1) added = ggml_scale(scope.context, added, scale);
  return ggml_add(scope.context, added, x);
}

}  // namespace

ggml_tensor* rotate_heads(const GraphScope& scope, const DecoderStyle& style, ggml_tensor* rows,
                          int64_t layer, ggml_tensor* positions) {
  const int64_t step = style.no_rope_step;
  if (!scope.hp.rotary || (step > 0 && (layer + 1) % step == 0)) return rows;
  ggml_tensor* factors = style.rope_factors ? scope.weights.get("rope_freqs.weight") : nullptr;
  return rotate(scope, rows, scope.hp.head_dim, layer, positions, factors);
}

std::string layer_name(int64_t layer, const char* name) {
  return "blk." + std::to_string(layer) + "." + name;
}

ggml_tensor* rms_norm(const GraphScope& scope, ggml_tensor* x, const std::string& weight) {
  return ggml_mul(scope.context, ggml_rms_norm(scope.context, x, scope.hp.norm_epsilon),
                  scope.weights.get(weight));
}

ggml_tensor* linear(const GraphScope& scope, ggml_tensor* x, const std::string& stem) {
  ggml_tensor* y = matrix_product(scope.context, scope.weights.matrix(stem + ".weight"), x);
  ggml_tensor* bias = scope.weights.get(stem + ".bias");
  return bias != nullptr ? ggml_add(scope.context, y, bias) : y;
}

ggml_tensor* rotate(const GraphScope& scope, ggml_tensor* rows, int64_t n_rot, int64_t layer,
                    ggml_tensor* positions, ggml_tensor* factors) {
  const Hyperparameters& hp = scope.hp;
  const RopeSettings& rope = hp.rope;
  const bool local = hp.layers.is_local(layer);
  constexpr float kBetaFast = 32;
  constexpr float kBetaSlow = 1;
  return ggml_rope_ext(scope.context, rows, positions, factors, static_cast<int>(n_rot), rope.type,
                       static_cast<int>(rope.original_context), local ? rope.base_local : rope.base,
                       local ? 1.0f : rope.scale, rope.extrapolation, rope.attention_factor,
                       kBetaFast, kBetaSlow);
}

ggml_tensor* gated_ffn(const GraphScope& scope, ggml_tensor* x, int64_t layer, const char* suffix,
                       bool gelu) {
  const auto stem = [&](const char* name) { return layer_name(layer, name) + suffix; };
  ggml_tensor* gate = linear(scope, x, stem("ffn_gate"));
  ggml_tensor* up = linear(scope, x, stem("ffn_up"));
  ggml_tensor* product =
      gelu ? ggml_geglu_split(scope.context, gate, up) : ggml_swiglu_split(scope.context, gate, up);
  return linear(scope, product, stem("ffn_down"));
}

ggml_tensor* convolve(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias,
                      ggml_tensor*& taps) {
  const int64_t n_tokens = x->ne[1];
  const int64_t n_channel = x->ne[0];
  const int64_t n_before = taps->ne[0];
  // (channel, time)
  ggml_tensor* inputs = ggml_concat(context, taps, ggml_transpose(context, x), 0);
  taps = ggml_cont(context, ggml_view_2d(context, inputs, n_before, n_channel, inputs->nb[1],
                                         static_cast<size_t>(n_tokens) * inputs->nb[0]));
  weight = ggml_reshape_2d(context, weight, n_before + 1, n_channel);
  ggml_tensor* y = ggml_ssm_conv(context, inputs, weight);
  if (bias != nullptr) y = ggml_add(context, y, bias);
  return ggml_silu(context, y);
}

void LayerWeights::vector(const char* name, int64_t n, bool required) {
  specs_.push_back({layer_name(layer_, name), {n, 1, 1}, required});
}

void LayerWeights::matrix(const char* stem, int64_t n_in, int64_t n_out) {
  const std::string name = layer_name(layer_, stem);
  specs_.push_back({name + ".weight", {n_in, n_out, 1}, true, true});
  specs_.push_back({name + ".bias", {n_out, 1, 1}, false});
}

void LayerWeights::experts(const char* name, int64_t n_in, int64_t n_out, int64_t n_expert) {
  specs_.push_back({layer_name(layer_, name), {n_in, n_out, n_expert}, true, true});
}

void LayerWeights::tensor(const char* name, std::array<int64_t, 3> ne, bool plain) {
  WeightSpec spec = {layer_name(layer_, name), ne};
  spec.plain = plain;
  specs_.push_back(std::move(spec));
}

ggml_tensor* build_decoder(const GraphScope& scope, const DecoderStyle& style,
                           const GraphInputs& inputs, AttentionSeam& seam) {
  const Hyperparameters& hp = scope.hp;
  ggml_context* context = scope.context;
  ggml_tensor* x = ggml_get_rows(context, scope.weights.get("token_embd.weight"), inputs.tokens);
  if (hp.embedding_scale != 1) x = ggml_scale(context, x, hp.embedding_scale);
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    const bool last = layer == hp.n_layer - 1;
    const Mixer& mixer = style.mixer_of(hp, layer);
    const LayerScope layer_scope = {scope, style, inputs,
                                    seam,  layer, last && inputs.output_rows == nullptr};
    ggml_tensor* mixed =
        mixer.build(layer_scope, rms_norm(scope, x, layer_name(layer, "attn_norm.weight")));
    if (mixed == nullptr) return nullptr;
    if (last) {
      mixed = ggml_get_rows(context, mixed, inputs.output_rows);
      x = ggml_get_rows(context, x, inputs.output_rows);
    }
    ggml_tensor* added = linear(scope, mixed, layer_name(layer, mixer.output));
    if (style.post_norm) {
      added = rms_norm(scope, added, layer_name(layer, "post_attention_norm.weight"));
    }
    x = add_to_residual(scope, added, x);
    ggml_tensor* normed = rms_norm(scope, x, layer_name(layer, "ffn_norm.weight"));
    added = has_experts(hp, layer) ? expert_ffn(scope, normed, layer)
                                   : gated_ffn(scope, normed, layer, "", style.gelu);
    if (style.post_norm) {
      added = rms_norm(scope, added, layer_name(layer, "post_ffw_norm.weight"));
    }
    x = add_to_residual(scope, added, x);
  }
  return logits_of(scope, x);
}

std::vector<WeightSpec> decoder_weights(const GgufFile& file, const Hyperparameters& hp,
                                        const DecoderStyle& style) {
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
    LayerWeights weights(specs, layer);
    weights.vector("attn_norm.weight", hp.n_embd);
    weights.vector("ffn_norm.weight", hp.n_embd);
    style.mixer_of(hp, layer).add_weights(hp, style, weights);
    if (style.post_norm) {
      weights.vector("post_attention_norm.weight", hp.n_embd);
      weights.vector("post_ffw_norm.weight", hp.n_embd);
    }
    if (has_experts(hp, layer)) {
      add_expert_weights(hp, weights);
      continue;
    }
    weights.matrix("ffn_gate", hp.n_embd, hp.n_ff);
    weights.matrix("ffn_up", hp.n_embd, hp.n_ff);
    weights.matrix("ffn_down", hp.n_ff, hp.n_embd);
  }
  return specs;
}

}  // namespace ctxzip::arch
