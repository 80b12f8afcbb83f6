// The numbers of a model that its graph needs.
#pragma once

#include <cstdint>
#include <string>

#include "cache/layer_map.h"
#include "model/gguf_file.h"

namespace ctxzip {

// Rotary embedding as ggml_rope_ext takes it.
struct RopeSettings {
  int type = 0;  // GGML_ROPE_TYPE_*
  float base = 10000;
  float base_local = 0;          // of local layers; those are never scaled
  float scale = 1;               // frequency scale; 1/factor for linear and yarn
  std::string scaling = "none";  // "none", "linear", "yarn"
  float extrapolation = 0;       // 1 for yarn: mix scaled and unscaled frequencies
  float attention_factor = 1;    // multiplies the rotated values
  int64_t original_context = 0;  // length before yarn stretched it
};

// Mixture-of-experts feed-forward; n_expert 0: a dense one.
struct ExpertSettings {
  int64_t n_expert = 0;
  int64_t n_used = 0;
  int64_t n_group = 1;          // neighbouring experts make a group
  int64_t n_group_used = 1;     // a token's experts come from so many
  int64_t n_ff = 0;             // of one expert
  int64_t n_ff_shared = 0;      // of the expert that every token takes; 0: there is none
  int64_t n_leading_dense = 0;  // the first layers have dense feed-forwards
  bool sigmoid = false;         // router logits become shares by sigmoid, not softmax
  bool normalised = true;       // the chosen experts' shares are divided by their sum
  float weight_scale = 0;       // of the chosen experts' weights; 0: 1
};

// Latent attention (MLA) in absorbed form: one KV head, whose row is a normed content part and a
// branch part; the content is also the value. content 0: the model has plain heads.
struct LatentSettings {
  int64_t content = 0;
  int64_t branch = 0;
  int64_t q_rank = 0;     // queries go through so many values; 0: they are projected directly
  int64_t key_dim = 0;    // of one query head before absorption, branch included
  int64_t value_dim = 0;  // of one head's output
};

// The state of recurrent layers. Kimi's delta net: n_head heads with a head_dim x head_dim matrix
// each. Mamba2: n_head heads with head_dim x state_dim, n_group groups of inputs.
struct RecurrentSettings {
  int64_t n_head = 0;
  int64_t head_dim = 0;
  int64_t state_dim = 0;
  int64_t n_group = 0;
  int64_t n_tap = 0;  // of the causal convolutions, the token's own included
};

struct Hyperparameters {
  std::string architecture;
  int64_t n_layer = 0;
  int64_t n_embd = 0;
  int64_t n_head = 0;
  int64_t n_kv_head = 0;
  int64_t head_dim = 0;
  int64_t n_ff = 0;
  int64_t n_vocab = 0;
  int64_t n_ctx_train = 0;
  float norm_epsilon = 0;
  LayerMap layers;
  RopeSettings rope;
  ExpertSettings experts;
  LatentSettings latent;
  RecurrentSettings recurrent;
  int64_t state_size = 0;     // values that a recurrent layer remembers
  bool rotary = true;         // false: no layer rotates q and k (NoPE)
  float attention_scale = 0;  // of q.k; 1/sqrt(head_dim) unless the architecture sets another
  float embedding_scale = 1;
  float residual_scale = 1;  // of what a layer adds
  float logit_scale = 1;
  float logit_softcap = 0;  // of the final logits; 0: none

  int64_t group() const { return n_head / n_kv_head; }
};

// Reads and checks the keys that all supported architectures share. Throws kCorruptFile naming the
// key, kUnsupported naming the feature (longrope, ...).
Hyperparameters read_hyperparameters(const GgufFile& file);

// KV heads with keys and values of one size, rotated whole. Throws kUnsupported (uneven heads,
// partial rotation, ...).
void read_plain_heads(const GgufFile& file, Hyperparameters& hp);

// Sets hp.layers from the KV heads of each layer: those without are recurrent. Returns the number
// that all others have. Throws kUnsupported when there is no other layer, or they differ.
int64_t read_hybrid_layers(const GgufFile& file, Hyperparameters& hp);

// Experts as the file says; `n_ff_default`: of one expert, where it does not. Throws kCorruptFile,
// kUnsupported (other routers than softmax and sigmoid).
void read_experts(const GgufFile& file, int64_t n_ff_default, Hyperparameters& hp);

// For architectures without experts: throws kUnsupported if the file has some.
void refuse_experts(const GgufFile& file, const Hyperparameters& hp);

}  // namespace ctxzip
