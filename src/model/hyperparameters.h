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
  int64_t n_ff = 0;        // of one expert
  float weight_scale = 0;  // of the chosen experts' weights; 0: 1
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
  float attention_scale = 0;  // of q.k; 1/sqrt(head_dim) unless the architecture sets another
  float logit_softcap = 0;    // of the final logits; 0: none

  int64_t group() const { return n_head / n_kv_head; }
};

// Reads and checks the keys that all supported architectures share. Throws kCorruptFile naming the
// key, kUnsupported naming the feature (longrope, uneven heads, ...).
Hyperparameters read_hyperparameters(const GgufFile& file);

// For architectures without experts: throws kUnsupported if the file has some.
void refuse_experts(const GgufFile& file, const Hyperparameters& hp);

}  // namespace ctxzip
