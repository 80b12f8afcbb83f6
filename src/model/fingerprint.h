// What identifies a model for a zipped context: enough to refuse rows of any other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ctxzip {

struct ModelFingerprint {
  std::string architecture;
  int64_t n_layer = 0;
  int64_t n_embd = 0;
  int64_t n_head = 0;
  int64_t n_kv_head = 0;
  int64_t head_dim = 0;
  int64_t n_vocab = 0;
  std::string layers;  // a LayerKind letter for each
  int64_t window = 0;  // of local layers, 0 = there are none
  double rope_base = 0;
  double rope_base_local = 0;  // of local layers, 0 = there are none
  double rope_scale = 1;       // frequency scale, 1 = none
  std::string rope_scaling;    // "none", "linear", "yarn"
  double rope_attention_factor = 1;
  int64_t rope_original_context = 0;  // yarn, 0 = none
  uint64_t rope_factors_hash = 0;     // of the rope_freqs tensor, 0 = none
  uint64_t tensor_table_hash = 0;     // names, types, shapes of all tensors
  uint64_t weights_hash = 0;          // bytes sampled from every tensor
  uint64_t tokenizer_hash = 0;        // all tokenizer.* metadata, without the chat template
  int64_t value_dim = 0;   // latent attention: V is so much of each K row; 0: V has its own rows
  int64_t state_size = 0;  // values of a recurrent layer's state, 0 = there are none
  uint64_t settings_hash =
      0;  // all of the architecture's metadata, for models with either of these

  bool operator==(const ModelFingerprint&) const = default;
  // 16 hex digits over all fields.
  std::string digest() const;
};

// Calls visit(name, value, since) for every field in declaration order; values are std::string,
// int64_t, double or uint64_t. Names and order are part of the file format, `since` is the format's
// version that brought the field: files of earlier versions stand for models whose value is the
// default (for `layers`: all global).
template <typename Fingerprint, typename Visit>
void for_each_field(Fingerprint& fingerprint, Visit&& visit) {
  visit("architecture", fingerprint.architecture, 1);
  visit("n_layer", fingerprint.n_layer, 1);
  visit("n_embd", fingerprint.n_embd, 1);
  visit("n_head", fingerprint.n_head, 1);
  visit("n_kv_head", fingerprint.n_kv_head, 1);
  visit("head_dim", fingerprint.head_dim, 1);
  visit("n_vocab", fingerprint.n_vocab, 1);
  visit("layers", fingerprint.layers, 2);
  visit("window", fingerprint.window, 2);
  visit("rope_base", fingerprint.rope_base, 1);
  visit("rope_base_local", fingerprint.rope_base_local, 2);
  visit("rope_scale", fingerprint.rope_scale, 1);
  visit("rope_scaling", fingerprint.rope_scaling, 1);
  visit("rope_attention_factor", fingerprint.rope_attention_factor, 2);
  visit("rope_original_context", fingerprint.rope_original_context, 2);
  visit("rope_factors_hash", fingerprint.rope_factors_hash, 1);
  visit("tensor_table_hash", fingerprint.tensor_table_hash, 1);
  visit("weights_hash", fingerprint.weights_hash, 1);
  visit("tokenizer_hash", fingerprint.tokenizer_hash, 1);
  visit("value_dim", fingerprint.value_dim, 3);
  visit("state_size", fingerprint.state_size, 3);
  visit("settings_hash", fingerprint.settings_hash, 3);
}

// "rope_base is 10000 in the file, 500000 in the model"; empty when equal.
std::optional<std::string> first_difference(const ModelFingerprint& in_file,
                                            const ModelFingerprint& in_model);

}  // namespace ctxzip
