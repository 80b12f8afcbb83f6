#include "model/hyperparameters.h"

#include <cmath>

#include "core/fail.h"
#include "kernels/attention.h"

namespace ctxzip {
namespace {

constexpr int64_t kMaxExperts = 4096;
// Values of expert_gating_func, as libllama numbers them.
constexpr int64_t kNoGating = 0;
constexpr int64_t kSoftmaxGating = 1;
constexpr int64_t kSigmoidGating = 2;

float positive(const GgufFile& file, const std::string& key, double otherwise) {
  const double value = file.find_float(key).value_or(otherwise);
  if (!(value > 0)) {
    fail(ErrorKind::kCorruptFile, "{}: metadata '{}' is {}, expected a positive number",
         file.path(), key, value);
  }
  return static_cast<float>(value);
}

void read_expert_groups(const GgufFile& file, const std::string& prefix, ExpertSettings& experts) {
  if (file.find_int(prefix + "expert_group_count").value_or(0) <= 1) return;
  experts.n_group = file.require_int(prefix + "expert_group_count", 1, experts.n_expert);
  experts.n_group_used = file.require_int(prefix + "expert_group_used_count", 1, experts.n_group);
  const int64_t n_member = experts.n_expert / experts.n_group;
  if (experts.n_expert % experts.n_group != 0 || n_member < 2 ||
      experts.n_group_used * n_member < experts.n_used) {
    fail(ErrorKind::kCorruptFile,
         "{}: {} experts in {} groups, of which {} give {} experts to a token (groups of equal "
         "size, two experts or more, that hold enough are expected)",
         file.path(), experts.n_expert, experts.n_group, experts.n_group_used, experts.n_used);
  }
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

}  // namespace

Hyperparameters read_hyperparameters(const GgufFile& file) {
  Hyperparameters hp;
  hp.architecture = file.require_string("general.architecture");
  const std::string prefix = hp.architecture + ".";
  hp.n_layer = file.require_int(prefix + "block_count", 1, 4096);
  hp.n_embd = file.require_int(prefix + "embedding_length", 1, 1 << 20);
  hp.n_head = file.require_int(prefix + "attention.head_count", 1, 4096);
  hp.n_ff = file.require_int(prefix + "feed_forward_length", 1, 1 << 22);
  hp.n_ctx_train = file.require_int(prefix + "context_length", 1, int64_t{1} << 31);
  hp.norm_epsilon =
      static_cast<float>(file.require_float(prefix + "attention.layer_norm_rms_epsilon"));
  hp.layers = LayerMap::all_global(hp.n_layer);
  hp.rope.base = positive(file, prefix + "rope.freq_base", 10000);
  read_rope_scaling(file, prefix, hp);
  return hp;
}

void read_plain_heads(const GgufFile& file, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".";
  if (hp.n_kv_head == 0) {
    hp.n_kv_head = file.find_int(prefix + "attention.head_count_kv").value_or(hp.n_head);
  }
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
  if (hp.head_dim < 8 || hp.head_dim > kMaxQuantisedDim || hp.head_dim % 8 != 0 ||
      value_dim != hp.head_dim) {
    fail(ErrorKind::kUnsupported,
         "{}: head dimensions {} (keys) and {} (values) are not supported; equal multiples of 8 up "
         "to {} are",
         file.path(), hp.head_dim, value_dim, kMaxQuantisedDim);
  }
  hp.attention_scale = 1 / std::sqrt(static_cast<float>(hp.head_dim));
  const int64_t n_rot = file.find_int(prefix + "rope.dimension_count").value_or(hp.head_dim);
  if (n_rot != hp.head_dim) {
    fail(ErrorKind::kUnsupported, "{}: rope over {} of {} head dimensions is not supported",
         file.path(), n_rot, hp.head_dim);
  }
}

int64_t read_hybrid_layers(const GgufFile& file, Hyperparameters& hp) {
  const std::string key = hp.architecture + ".attention.head_count_kv";
  const std::vector<int64_t> heads = file.find_ints(key);
  if (static_cast<int64_t>(heads.size()) < hp.n_layer) {
    fail(ErrorKind::kUnsupported,
         "{}: metadata '{}' has {} entries for {} layers, expected one each", file.path(), key,
         heads.size(), hp.n_layer);
  }
  std::string kinds(static_cast<size_t>(hp.n_layer), static_cast<char>(LayerKind::kRecurrent));
  int64_t n_kv_head = 0;
  for (size_t layer = 0; layer < kinds.size(); ++layer) {
    if (heads[layer] == 0) continue;
    kinds[layer] = static_cast<char>(LayerKind::kGlobal);
    if (n_kv_head != 0 && heads[layer] != n_kv_head) {
      fail(ErrorKind::kUnsupported,
           "{}: layers of {} and of {} KV heads are not supported together", file.path(), n_kv_head,
           heads[layer]);
    }
    n_kv_head = heads[layer];
  }
  if (n_kv_head == 0) {
    fail(ErrorKind::kUnsupported,
         "{}: all of its {} layers are recurrent: there is nothing to evict", file.path(),
         hp.n_layer);
  }
  hp.layers = LayerMap(kinds, 0);
  return n_kv_head;
}

void read_experts(const GgufFile& file, int64_t n_ff_default, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".";
  ExpertSettings& experts = hp.experts;
  experts.n_expert = file.require_int(prefix + "expert_count", 1, kMaxExperts);
  experts.n_used = file.require_int(prefix + "expert_used_count", 1, experts.n_expert);
  experts.n_ff = file.find_int(prefix + "expert_feed_forward_length").value_or(n_ff_default);
  experts.n_leading_dense = file.find_int(prefix + "leading_dense_block_count").value_or(0);
  experts.weight_scale =
      static_cast<float>(file.find_float(prefix + "expert_weights_scale").value_or(0));
  if (experts.n_ff < 1) {
    fail(ErrorKind::kCorruptFile, "{}: experts with a feed-forward length of {}", file.path(),
         experts.n_ff);
  }
  int64_t gating = file.find_int(prefix + "expert_gating_func").value_or(kNoGating);
  if (gating == kNoGating) gating = kSoftmaxGating;
  if (gating != kSoftmaxGating && gating != kSigmoidGating) {
    fail(ErrorKind::kUnsupported,
         "{}: expert gating function {} is not supported ({} softmax, {} sigmoid are)", file.path(),
         gating, kSoftmaxGating, kSigmoidGating);
  }
  experts.sigmoid = gating == kSigmoidGating;
  read_expert_groups(file, prefix, experts);
}

void refuse_experts(const GgufFile& file, const Hyperparameters& hp) {
  if (file.find_int(hp.architecture + ".expert_count").value_or(0) > 0) {
    fail(ErrorKind::kUnsupported,
         "{}: mixture-of-experts models of architecture '{}' are not supported", file.path(),
         hp.architecture);
  }
}

}  // namespace ctxzip
