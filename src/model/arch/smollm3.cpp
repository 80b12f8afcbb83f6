#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.no_rope_step = 4};

void complete(const GgufFile& file, Hyperparameters& hp) {
  read_plain_heads(file, hp);
  hp.rope.type = GGML_ROPE_TYPE_NORMAL;
  refuse_experts(file, hp);
}

}  // namespace

const Architecture kSmolLm3Architecture = arch::decoder_architecture<kStyle>("smollm3", complete);

}  // namespace ctxzip
