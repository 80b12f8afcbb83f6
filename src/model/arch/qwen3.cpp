#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.head_norm = true};

void complete(const GgufFile& file, Hyperparameters& hp) {
  read_plain_heads(file, hp);
  hp.rope.type = GGML_ROPE_TYPE_NEOX;
  refuse_experts(file, hp);
}

void complete_experts(const GgufFile& file, Hyperparameters& hp) {
  read_plain_heads(file, hp);
  hp.rope.type = GGML_ROPE_TYPE_NEOX;
  const int64_t n_used = file.require_int(hp.architecture + ".expert_used_count", 1, 4096);
  read_experts(file, hp.n_ff / n_used, hp);
}

}  // namespace

const Architecture kQwen3Architecture = arch::decoder_architecture<kStyle>("qwen3", complete);
const Architecture kQwen3MoeArchitecture =
    arch::decoder_architecture<kStyle>("qwen3moe", complete_experts);

}  // namespace ctxzip
