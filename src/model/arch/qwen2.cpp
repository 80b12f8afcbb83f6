#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {};

void complete(const GgufFile& file, Hyperparameters& hp) {
  read_plain_heads(file, hp);
  hp.rope.type = GGML_ROPE_TYPE_NEOX;
  refuse_experts(file, hp);
}

}  // namespace

const Architecture kQwen2Architecture = arch::decoder_architecture<kStyle>("qwen2", complete);

}  // namespace ctxzip
