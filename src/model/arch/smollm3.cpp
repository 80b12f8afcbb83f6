#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.no_rope_step = 4};

void complete(const GgufFile& file, Hyperparameters& hp) {
  hp.rope.type = GGML_ROPE_TYPE_NORMAL;
  refuse_experts(file, hp);
}

std::vector<WeightSpec> weights(const GgufFile& file, const Hyperparameters& hp) {
  return arch::decoder_weights(file, hp, kStyle);
}

ggml_tensor* build(const GraphScope& scope, const GraphInputs& inputs, AttentionSeam& seam) {
  return arch::build_decoder(scope, kStyle, inputs, seam);
}

}  // namespace

const Architecture kSmolLm3Architecture = {"smollm3", complete, weights, build};

}  // namespace ctxzip
