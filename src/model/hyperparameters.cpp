#include "model/hyperparameters.h"

#include <cmath>

#include "core/fail.h"
#include "kernels/attention.h"

namespace ctxzip {
namespace {

float positive(const GgufFile& file, const std::string& key, double otherwise) {
  const double value = file.find_float(key).value_or(otherwise);
  if (!(value > 0)) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is {}, expected a positive number",
         file.path(), key, value);
  }
  return static_cast<float>(value);
}

// What libllama derives from the same keys (llama_context's constructor).
void read_rope_scaling(const GgufFile& file, const std::string& prefix, Hyperparameters& hp) {
  RopeSettings& rope = hp.rope;
  const std::string type = file.find_string(prefix + "rope.scaling.type").value_or("linear");
  if (type != "none" && type != "linear" && type != "yarn") {
    fail(ErrorKind::kUnsupported,
         "{}: rope scaling '{}' is not supported (none, linear and yarn are)", file.path(), type);
  }
  double factor = file.find_float(prefix + "rope.scaling.factor").value_or(0);
  if (factor == 0) factor = file.find_float(prefix + "rope.scale_linear").value_or(0);
  if (factor < 0) {
    fail(ErrorKind::kCorruptFile, "{}: the rope scaling factor is {}, expected a positive number",
         file.path(), factor);
  }
  if (factor == 0) factor = 1;
  rope.attention_factor = positive(file, prefix + "rope.scaling.attn_factor", 1);
  if (type == "yarn") {
    rope.scaling = type;
    rope.extrapolation = 1;
    const int64_t original =
        file.find_int(prefix + "rope.scaling.original_context_length").value_or(0);
    rope.original_context = original > 0 ? original : hp.n_ctx_train;
    // ggml multiplies by 1 + 0.1 ln(factor) itself; below 1 libllama takes that back.
    if (factor < 1) rope.attention_factor /= 1 + 0.1f * std::log(static_cast<float>(factor));
  } else if (type == "linear" && factor != 1) {
    rope.scaling = type;
  }
  if (rope.scaling != "none") rope.scale = 1 / static_cast<float>(factor);
}

void read_rope(const GgufFile& file, const std::string& prefix, Hyperparameters& hp) {
  hp.rope.base = positive(file, prefix + "rope.freq_base", 10000);
  read_rope_scaling(file, prefix, hp);
  const int64_t n_rot = file.find_int(prefix + "rope.dimension_count").value_or(hp.head_dim);
  if (n_rot != hp.head_dim) {
    fail(ErrorKind::kUnsupported, "{}: rope over {} of {} head dimensions is not supported",
         file.path(), n_rot, hp.head_dim);
  }
}

}  // namespace

Hyperparameters read_hyperparameters(const GgufFile& file) {
  Hyperparameters hp;
  hp.architecture = file.require_string("general.architecture");
  const std::string prefix = hp.architecture + ".";
  hp.n_layer = file.require_int(prefix + "block_count", 1, 4096);
  hp.n_embd = file.require_int(prefix + "embedding_length", 1, 1 << 20);
  hp.n_head = file.require_int(prefix + "attention.head_count", 1, 4096);
  hp.n_kv_head = file.find_int(prefix + "attention.head_count_kv").value_or(hp.n_head);
  hp.n_ff = file.require_int(prefix + "feed_forward_length", 1, 1 << 22);
  hp.n_ctx_train = file.require_int(prefix + "context_length", 1, int64_t{1} << 31);
  hp.norm_epsilon =
      static_cast<float>(file.require_float(prefix + "attention.layer_norm_rms_epsilon"));

  if (hp.n_kv_head < 1 || hp.n_head % hp.n_kv_head != 0 || hp.group() > kMaxGroup) {
    fail(ErrorKind::kUnsupported, "{}: {} query heads over {} KV heads are not supported",
         file.path(), hp.n_head, hp.n_kv_head);
  }
  if (hp.n_embd % hp.n_head != 0 && !file.find_int(prefix + "attention.key_length")) {
    fail(ErrorKind::kCorruptFile, "{}: embedding length {} is not a multiple of {} heads",
         file.path(), hp.n_embd, hp.n_head);
  }
  hp.head_dim = file.find_int(prefix + "attention.key_length").value_or(hp.n_embd / hp.n_head);
  const int64_t value_dim = file.find_int(prefix + "attention.value_length").value_or(hp.head_dim);
  if (hp.head_dim < 8 || hp.head_dim > kMaxHeadDim || hp.head_dim % 8 != 0 ||
      value_dim != hp.head_dim) {
    fail(ErrorKind::kUnsupported,
         "{}: head dimensions {} (keys) and {} (values) are not supported; equal multiples of 8 up "
         "to {} are",
         file.path(), hp.head_dim, value_dim, kMaxHeadDim);
  }
  hp.attention_scale = 1 / std::sqrt(static_cast<float>(hp.head_dim));
  hp.layers = LayerMap::all_global(hp.n_layer);
  read_rope(file, prefix, hp);
  return hp;
}

void refuse_experts(const GgufFile& file, const Hyperparameters& hp) {
  if (file.find_int(hp.architecture + ".expert_count").value_or(0) > 0) {
    fail(ErrorKind::kUnsupported,
         "{}: mixture-of-experts models of architecture '{}' are not supported", file.path(),
         hp.architecture);
  }
}

}  // namespace ctxzip
