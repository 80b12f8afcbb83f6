#include "model/hyperparameters.h"

#include "core/fail.h"
#include "kernels/attention.h"

namespace ctxzip {
namespace {

void read_rope(const GgufFile& file, const std::string& prefix, Hyperparameters& hp) {
  hp.rope_base = static_cast<float>(file.find_float(prefix + "rope.freq_base").value_or(10000.0));
  if (!(hp.rope_base > 0)) {
    fail(ErrorKind::kCorruptFile,
         "{}: metadata '{}rope.freq_base' is {}, expected a positive number", file.path(), prefix,
         hp.rope_base);
  }
  const std::string type = file.find_string(prefix + "rope.scaling.type").value_or("linear");
  double factor = file.find_float(prefix + "rope.scaling.factor").value_or(0);
  if (factor == 0) factor = file.find_float(prefix + "rope.scale_linear").value_or(0);
  if (type != "none" && type != "linear") {
    fail(ErrorKind::kUnsupported, "{}: rope scaling '{}' is not supported (none and linear are)",
         file.path(), type);
  }
  if (type == "linear" && factor != 0 && factor != 1) {
    hp.rope_scaling = "linear";
    hp.rope_scale = static_cast<float>(1.0 / factor);
  }
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
  if (file.find_int(prefix + "expert_count").value_or(0) > 0) {
    fail(ErrorKind::kUnsupported,
         "{}: mixture-of-experts models of architecture '{}' are not supported", file.path(),
         hp.architecture);
  }
  read_rope(file, prefix, hp);
  return hp;
}

}  // namespace ctxzip
