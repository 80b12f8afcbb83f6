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
  double rope_base = 0;
  double rope_scale = 1;           // frequency scale, 1 = none
  std::string rope_scaling;        // "none", "linear", ...
  uint64_t rope_factors_hash = 0;  // of the rope_freqs tensor, 0 = none
  uint64_t tensor_table_hash = 0;  // names, types, shapes of all tensors
  uint64_t weights_hash = 0;       // bytes sampled from every tensor
  uint64_t tokenizer_hash = 0;     // all tokenizer.* metadata, without the chat template

  bool operator==(const ModelFingerprint&) const = default;
  // 16 hex digits over all fields.
  std::string digest() const;
};

// Calls visit(name, value) for every field in declaration order; values are std::string, int64_t,
// double or uint64_t. Names and order are part of the file format.
template <typename Fingerprint, typename Visit>
void for_each_field(Fingerprint& fingerprint, Visit&& visit) {
  visit("architecture", fingerprint.architecture);
  visit("n_layer", fingerprint.n_layer);
  visit("n_embd", fingerprint.n_embd);
  visit("n_head", fingerprint.n_head);
  visit("n_kv_head", fingerprint.n_kv_head);
  visit("head_dim", fingerprint.head_dim);
  visit("n_vocab", fingerprint.n_vocab);
  visit("rope_base", fingerprint.rope_base);
  visit("rope_scale", fingerprint.rope_scale);
  visit("rope_scaling", fingerprint.rope_scaling);
  visit("rope_factors_hash", fingerprint.rope_factors_hash);
  visit("tensor_table_hash", fingerprint.tensor_table_hash);
  visit("weights_hash", fingerprint.weights_hash);
  visit("tokenizer_hash", fingerprint.tokenizer_hash);
}

// "rope_base is 10000 in the file, 500000 in the model"; empty when equal.
std::optional<std::string> first_difference(const ModelFingerprint& in_file,
                                            const ModelFingerprint& in_model);

}  // namespace ctxzip
