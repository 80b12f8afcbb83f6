#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {};

void complete(const GgufFile& file, Hyperparameters& hp) {
  hp.rope.type = GGML_ROPE_TYPE_NEOX;
  refuse_experts(file, hp);
}

std::vector<WeightSpec> weights(const GgufFile& file, const Hyperparameters& hp) {
  return arch::decoder_weights(file, hp, kStyle);
}

ggml_tensor* build(const GraphScope& scope, const GraphInputs& inputs, AttentionSeam& seam) {
  return arch::build_decoder(scope, kStyle, inputs, seam);
}

}  // namespace

const Architecture kQwen2Architecture = {"qwen2", complete, weights, build};

}  // namespace ctxzip
