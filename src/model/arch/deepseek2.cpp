#include <cmath>

#include "core/fail.h"
#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.mixer = &arch::kLatentAttention};

// Yarn as libllama applies it to this architecture: the growth of the scores with the stretch goes
// into their scale, and the rotated values keep their length when the file names a multiplier.
void scale_for_yarn(const GgufFile& file, Hyperparameters& hp) {
  RopeSettings& rope = hp.rope;
  constexpr float kPerLog = 0.1f;
  const float log_stretch = std::log(1 / rope.scale);
  const float growth = 1 + kPerLog * log_stretch;  // what ggml multiplies rotated values by
  const double multiplier =
      file.find_float(hp.architecture + ".rope.scaling.yarn_log_multiplier").value_or(0);
  if (rope.scaling == "yarn" && multiplier != 0 && log_stretch > 0) rope.attention_factor /= growth;
  const float scale =
      rope.attention_factor * growth * (1 + static_cast<float>(multiplier) * log_stretch);
  hp.attention_scale *= scale * scale;
}

void complete(const GgufFile& file, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".";
  hp.rope.type = GGML_ROPE_TYPE_NORMAL;
  arch::read_latent_heads(file, hp);
  scale_for_yarn(file, hp);
  // Small models have no query compression, whatever their keys say.
  if (file.find_tensor("blk.0.attn_q.weight") == nullptr) {
    hp.latent.q_rank = file.require_int(prefix + "attention.q_lora_rank", 1, 1 << 16);
  }
  if (file.find_int(prefix + "expert_count").value_or(0) > 0) {
    read_experts(file, 0, hp);
    hp.experts.normalised = file.find_bool(prefix + "expert_weights_norm").value_or(false);
    hp.experts.n_ff_shared =
        hp.experts.n_ff * file.require_int(prefix + "expert_shared_count", 1, 1024);
  }
  if (file.find_int(prefix + "nextn_predict_layers").value_or(0) > 0) {
    fail(ErrorKind::kUnsupported, "{}: layers that predict several tokens are not supported",
         file.path());
  }
  if (file.find_float(prefix + "attention.temperature_scale").value_or(0) != 0) {
    fail(ErrorKind::kUnsupported, "{}: scaling attention by position is not supported",
         file.path());
  }
}

}  // namespace

const Architecture kDeepseek2Architecture =
    arch::decoder_architecture<kStyle>("deepseek2", complete);

}  // namespace ctxzip
