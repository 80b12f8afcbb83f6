// Random models small enough to make in a test.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ggml.h"

struct gguf_context;

namespace ctxzip::test {

struct TinyModel {
  std::string architecture = "llama";
  int64_t n_layer = 3;
  int64_t n_embd = 64;
  int64_t n_head = 4;
  int64_t n_kv_head = 2;
  int64_t head_dim = 0;  // 0: n_embd / n_head
  int64_t n_ff = 128;
  int64_t n_vocab = 256;
  int64_t n_ctx_train = 8192;
  ggml_type type = GGML_TYPE_F32;  // of matrices; norms and biases stay f32
  bool tied = false;
  bool biases = false;        // on every projection
  bool rope_factors = false;  // a rope_freqs tensor as Llama 3.1 has it
  int64_t window = 0;         // gemma3: of the local layers; 0: all layers are global
  int64_t pattern = 3;        // gemma3: every so many layers one is global
  // qwen3moe, and the architectures below: 0 for dense feed-forwards there.
  int64_t n_expert = 4;
  int64_t n_expert_used = 2;
  // deepseek2, kimi-linear
  int64_t n_leading_dense = 1;
  int64_t latent = 32;
  int64_t branch = 8;
  int64_t key_dim = 24;  // of a query head, branch included
  int64_t value_dim = 16;
  int64_t q_rank = 0;
  bool sigmoid_experts = false;
  std::string kinds = "rgrg";  // kimi-linear, granitehybrid: LayerKind letters
  bool rotary = false;         // granitehybrid
  uint32_t seed = 1;
  // Larger: more peaked attention and logits.
  float spread = 1.6f;
  // Last change before the file is written: to make a bad one.
  std::function<void(gguf_context*)> edit = {};
  std::string without_tensor = {};
};

// The architecture's own extras are there: biases of qwen2, norms of qwen3 and gemma3, experts of
// qwen3moe, recurrent layers of kimi-linear and granitehybrid (they set n_layer).
// Writes the file (tokenizer "none": token ids only).
void write_tiny_model(const TinyModel& model, const std::string& path);

// Writes `from` with every quantised tensor as f32.
void dequantise_model(const std::string& from, const std::string& to);

// Writes `from` with other metadata.
void edit_model(const std::string& from, const std::string& to,
                const std::function<void(gguf_context*)>& edit);

// A folder of this test process, removed at exit.
std::string temp_path(const std::string& name);

// For TinyModel::edit, with n_vocab = kByteVocab: a token a byte, and one that ends a text.
void add_byte_tokenizer(gguf_context* gguf);
constexpr int64_t kByteVocab = 257;

}  // namespace ctxzip::test
