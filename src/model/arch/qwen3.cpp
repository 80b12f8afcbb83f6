#include "core/fail.h"
#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.head_norm = true};

void complete(const GgufFile& file, Hyperparameters& hp) {
  hp.rope.type = GGML_ROPE_TYPE_NEOX;
  refuse_experts(file, hp);
}

void complete_experts(const GgufFile& file, Hyperparameters& hp) {
  hp.rope.type = GGML_ROPE_TYPE_NEOX;
  const std::string prefix = hp.architecture + ".";
  ExpertSettings& experts = hp.experts;
  experts.n_expert = file.require_int(prefix + "expert_count", 1, 4096);
  experts.n_used = file.require_int(prefix + "expert_used_count", 1, experts.n_expert);
  experts.n_ff =
      file.find_int(prefix + "expert_feed_forward_length").value_or(hp.n_ff / experts.n_used);
  experts.weight_scale =
      static_cast<float>(file.find_float(prefix + "expert_weights_scale").value_or(0));
  if (experts.n_ff < 1) {
    fail(ErrorKind::kCorruptFile, "{}: experts with a feed-forward length of {}", file.path(),
         experts.n_ff);
  }
  if (file.find_int(prefix + "expert_group_count").value_or(0) > 1) {
    fail(ErrorKind::kUnsupported, "{}: grouped experts are not supported", file.path());
  }
}

}  // namespace

const Architecture kQwen3Architecture = arch::decoder_architecture<kStyle>("qwen3", complete);
const Architecture kQwen3MoeArchitecture =
    arch::decoder_architecture<kStyle>("qwen3moe", complete_experts);

}  // namespace ctxzip
