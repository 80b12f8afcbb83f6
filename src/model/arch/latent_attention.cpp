#include <cmath>

#include "core/fail.h"
#include "kernels/attention.h"
#include "model/arch/blocks.h"

namespace ctxzip::arch {
namespace {

// The part [first, first + n) of each head of rows (n_tokens, n_head, dim).
ggml_tensor* part_of(ggml_context* context, ggml_tensor* rows, int64_t first, int64_t n) {
  return ggml_view_3d(context, rows, n, rows->ne[1], rows->ne[2], rows->nb[1], rows->nb[2],
                      static_cast<size_t>(first) * rows->nb[0]);
}

// (n_tokens, n_head, key_dim)
ggml_tensor* queries(const LayerScope& at, ggml_tensor* x) {
  const GraphScope& scope = at.scope;
  const LatentSettings& latent = scope.hp.latent;
  const auto name = [&](const char* stem) { return layer_name(at.layer, stem); };
  ggml_tensor* q = nullptr;
  if (latent.q_rank > 0) {
    q = rms_norm(scope, linear(scope, x, name("attn_q_a")), name("attn_q_a_norm.weight"));
    q = linear(scope, q, name("attn_q_b"));
  } else {
    q = linear(scope, x, name("attn_q"));
  }
  return ggml_reshape_3d(scope.context, q, latent.key_dim, scope.hp.n_head, x->ne[1]);
}

// Multiplies each head of rows (n_tokens, n_head, n_in) with its own matrix (n_head, n_out, n_in).
ggml_tensor* multiply_heads(const LayerScope& at, const char* weight, ggml_tensor* rows) {
  ggml_context* context = at.scope.context;
  ggml_tensor* product = ggml_mul_mat(context, at.scope.weights.get(layer_name(at.layer, weight)),
                                      ggml_permute(context, rows, 0, 2, 1, 3));
  return ggml_permute(context, product, 0, 2, 1, 3);
}

// Absorbed form: q W_k is compared with the content itself, and W_v is applied to what comes out.
ggml_tensor* build(const LayerScope& at, ggml_tensor* x) {
  const GraphScope& scope = at.scope;
  const LatentSettings& latent = scope.hp.latent;
  ggml_context* context = scope.context;
  const int64_t n_tokens = x->ne[1];
  const int64_t n_plain = latent.key_dim - latent.branch;
  ggml_tensor* q = queries(at, x);
  ggml_tensor* q_branch = part_of(context, q, n_plain, latent.branch);
  ggml_tensor* row = linear(scope, x, layer_name(at.layer, "attn_kv_a_mqa"));
  row = ggml_reshape_3d(context, row, latent.content + latent.branch, 1, n_tokens);
  ggml_tensor* content = rms_norm(scope, part_of(context, row, 0, latent.content),
                                  layer_name(at.layer, "attn_kv_a_norm.weight"));
  ggml_tensor* branch = part_of(context, row, latent.content, latent.branch);
  if (scope.hp.rotary) {
    const auto rotated = [&](ggml_tensor* rows) {
      return rotate(scope, rows, latent.branch, at.layer, at.inputs.positions, nullptr);
    };
    q_branch = rotated(q_branch);
    branch = rotated(branch);
  }
  ggml_tensor* q_content = multiply_heads(at, "attn_k_b.weight", part_of(context, q, 0, n_plain));
  const AttentionInput in = {.q = ggml_concat(context, q_content, q_branch, 0),
                             .k = ggml_concat(context, content, branch, 0),
                             .v = nullptr,
                             .q_unrotated = nullptr,
                             .hidden = x};
  ggml_tensor* attended = at.seam.attend(context, scope.graph, at.layer, in, at.output_unused);
  if (attended == nullptr) return nullptr;
  attended = ggml_reshape_3d(context, attended, latent.content, scope.hp.n_head, n_tokens);
  ggml_tensor* values = ggml_cont(context, multiply_heads(at, "attn_v_b.weight", attended));
  return ggml_reshape_2d(context, values, latent.value_dim * scope.hp.n_head, n_tokens);
}

void add_weights(const Hyperparameters& hp, const DecoderStyle&, LayerWeights& weights) {
  const LatentSettings& latent = hp.latent;
  const int64_t n_q = hp.n_head * latent.key_dim;
  if (latent.q_rank > 0) {
    weights.matrix("attn_q_a", hp.n_embd, latent.q_rank);
    weights.vector("attn_q_a_norm.weight", latent.q_rank);
    weights.matrix("attn_q_b", latent.q_rank, n_q);
  } else {
    weights.matrix("attn_q", hp.n_embd, n_q);
  }
  weights.matrix("attn_kv_a_mqa", hp.n_embd, latent.content + latent.branch);
  weights.vector("attn_kv_a_norm.weight", latent.content);
  weights.tensor("attn_k_b.weight", {latent.key_dim - latent.branch, latent.content, hp.n_head},
                 false);
  weights.tensor("attn_v_b.weight", {latent.content, latent.value_dim, hp.n_head}, false);
  weights.matrix("attn_output", hp.n_head * latent.value_dim, hp.n_embd);
}

}  // namespace

const Mixer kLatentAttention = {build, add_weights, "attn_output"};

void read_latent_heads(const GgufFile& file, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".";
  LatentSettings& latent = hp.latent;
  if (!file.find_int(prefix + "attention.key_length_mla")) {
    fail(ErrorKind::kUnsupported,
         "{}: its latent attention is not split for the absorbed form (no '{}'): convert the model "
         "with a later llama.cpp",
         file.path(), prefix + "attention.key_length_mla");
  }
  latent.key_dim = file.require_int(prefix + "attention.key_length_mla", 1, 1 << 16);
  latent.value_dim = file.require_int(prefix + "attention.value_length_mla", 1, 1 << 16);
  latent.content = file.require_int(prefix + "attention.kv_lora_rank", 1, 1 << 16);
  latent.branch = file.require_int(prefix + "rope.dimension_count", 1, 1 << 16);
  hp.n_kv_head = 1;
  hp.head_dim = latent.content + latent.branch;
  if (latent.branch >= latent.key_dim) {
    fail(ErrorKind::kCorruptFile, "{}: a branch of {} dimensions in query heads of {}", file.path(),
         latent.branch, latent.key_dim);
  }
  if (latent.content % 8 != 0 || latent.branch % 8 != 0 || hp.head_dim > kMaxHeadDim ||
      hp.n_head > kMaxGroup) {
    fail(ErrorKind::kUnsupported,
         "{}: latent rows of {} + {} values for {} heads are not supported; multiples of 8 up to "
         "{} together for at most {} heads are",
         file.path(), latent.content, latent.branch, hp.n_head, kMaxHeadDim, kMaxGroup);
  }
  hp.attention_scale = 1 / std::sqrt(static_cast<float>(latent.key_dim));
}

}  // namespace ctxzip::arch
