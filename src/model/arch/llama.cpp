#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

void complete(const GgufFile&, Hyperparameters& hp) { hp.rope_type = GGML_ROPE_TYPE_NORMAL; }

ggml_tensor* build(const Hyperparameters& hp, const Weights& weights, ggml_context* context,
                   ggml_cgraph* graph, const GraphInputs& inputs, AttentionSeam& seam) {
  return arch::build_decoder({hp, weights, context}, graph, inputs, seam);
}

}  // namespace

const Architecture kLlamaArchitecture = {"llama", complete, arch::decoder_weights, build};

}  // namespace ctxzip
