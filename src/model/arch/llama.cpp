#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.rope_factors = true};

void complete(const GgufFile& file, Hyperparameters& hp) {
  read_plain_heads(file, hp);
  hp.rope.type = GGML_ROPE_TYPE_NORMAL;
  refuse_experts(file, hp);
}

}  // namespace

const Architecture kLlamaArchitecture = arch::decoder_architecture<kStyle>("llama", complete);

}  // namespace ctxzip
