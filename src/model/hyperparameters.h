// The numbers of a model that its graph needs.
#pragma once

#include <cstdint>
#include <string>

#include "model/gguf_file.h"

namespace ctxzip {

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

  int rope_type = 0;  // GGML_ROPE_TYPE_*
  float rope_base = 10000;
  float rope_scale = 1;  // frequency scale; 1/factor for linear scaling
  std::string rope_scaling = "none";

  int64_t group() const { return n_head / n_kv_head; }
};

// Reads and checks the keys that all supported architectures share. Throws kCorruptFile naming the
// key, kUnsupported naming the feature (mixture of experts, yarn, longrope, uneven heads, ...).
Hyperparameters read_hyperparameters(const GgufFile& file);

}  // namespace ctxzip
