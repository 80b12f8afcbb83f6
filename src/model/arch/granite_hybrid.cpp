#include "core/fail.h"
#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.recurrent = &arch::kStateSpace, .rope_factors = true};

// Mamba2 as libllama runs it.
void read_state_space(const GgufFile& file, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".ssm.";
  const int64_t n_inner = file.require_int(prefix + "inner_size", 1, 1 << 20);
  RecurrentSettings& shape = hp.recurrent;
  shape.n_head = file.require_int(prefix + "time_step_rank", 1, n_inner);
  shape.n_group = file.require_int(prefix + "group_count", 1, shape.n_head);
  shape.state_dim = file.require_int(prefix + "state_size", 1, 4096);
  shape.n_tap = file.require_int(prefix + "conv_kernel", 2, 16);
  if (n_inner != 2 * hp.n_embd || n_inner % shape.n_head != 0 ||
      shape.n_head % shape.n_group != 0) {
    fail(ErrorKind::kUnsupported,
         "{}: a state space of {} values, {} heads and {} groups beside an embedding of {} is not "
         "supported (twice the embedding, in whole heads and groups, is)",
         file.path(), n_inner, shape.n_head, shape.n_group, hp.n_embd);
  }
  shape.head_dim = n_inner / shape.n_head;
  hp.state_size = (shape.n_tap - 1) * (n_inner + 2 * shape.n_group * shape.state_dim) +
                  n_inner * shape.state_dim;
}

void complete(const GgufFile& file, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".";
  hp.n_kv_head = read_hybrid_layers(file, hp);
  read_plain_heads(file, hp);
  hp.rope.type = GGML_ROPE_TYPE_NORMAL;
  hp.rotary = file.find_bool(prefix + "rope.scaling.finetuned").value_or(true);
  if (hp.layers.n_recurrent() > 0) read_state_space(file, hp);
  const auto scale = [&](const char* key, float otherwise) {
    const auto value = static_cast<float>(file.find_float(prefix + key).value_or(0));
    return value != 0 ? value : otherwise;
  };
  hp.attention_scale = scale("attention.scale", hp.attention_scale);
  hp.embedding_scale = scale("embedding_scale", 1);
  hp.residual_scale = scale("residual_scale", 1);
  hp.logit_scale = 1 / scale("logit_scale", 1);
  if (file.find_int(prefix + "expert_count").value_or(0) == 0) return;
  read_experts(file, hp.n_ff, hp);
  hp.experts.n_ff_shared = file.find_int(prefix + "expert_shared_feed_forward_length").value_or(0);
}

}  // namespace

const Architecture kGraniteHybridArchitecture =
    arch::decoder_architecture<kStyle>("granitehybrid", complete);

}  // namespace ctxzip
