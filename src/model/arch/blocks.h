// Pieces that several architectures share; each adds nodes for one step of a transformer layer.
// Activations are f32 (n_tokens, n_embd).
#pragma once

#include <string>
#include <vector>

#include "model/architecture.h"

namespace ctxzip::arch {

// "blk.3.attn_q.weight"
std::string layer_name(int64_t layer, const char* name);

// x / rms(x) * weight
ggml_tensor* rms_norm(const GraphScope& scope, ggml_tensor* x, const std::string& weight);

// weight x (+ bias where the file has one under the same stem)
ggml_tensor* linear(const GraphScope& scope, ggml_tensor* x, const std::string& stem);

// How a decoder stack differs from the plain one (pre-norm, rope everywhere, SwiGLU).
struct DecoderStyle {
  bool head_norm = false;        // q and k of each head are normed before rope (attn_q_norm, ...)
  bool post_norm = false;        // attention and feed-forward outputs are normed (post_*_norm)
  bool gelu = false;             // GeGLU instead of SwiGLU
  bool embedding_scale = false;  // embeddings times sqrt(n_embd)
  int64_t no_rope_step = 0;      // every so many layers one goes without rope; 0: none does
  bool rope_factors = false;     // rope_freqs.weight is honoured where the file has it
};

// Heads (n_tokens, n_head, head_dim) of a layer's queries or keys, rotated to their positions.
ggml_tensor* rotate(const GraphScope& scope, const DecoderStyle& style, ggml_tensor* rows,
                    int64_t layer, ggml_tensor* positions);

// Decoder stack from token ids to logits; null where the seam ends the pass early.
ggml_tensor* build_decoder(const GraphScope& scope, const DecoderStyle& style,
                           const GraphInputs& inputs, AttentionSeam& seam);

// Weights of that stack; every projection may have a bias, `output` may be tied to the embedding.
std::vector<WeightSpec> decoder_weights(const GgufFile& file, const Hyperparameters& hp,
                                        const DecoderStyle& style);

// The architecture of such a stack.
template <DecoderStyle kStyle>
constexpr Architecture decoder_architecture(const char* name,
                                            void (*complete)(const GgufFile&, Hyperparameters&)) {
  return {name, complete,
          [](const GgufFile& file, const Hyperparameters& hp) {
            return decoder_weights(file, hp, kStyle);
          },
          [](const GraphScope& scope, const GraphInputs& inputs, AttentionSeam& seam) {
            return build_decoder(scope, kStyle, inputs, seam);
          },
          [](const GraphScope& scope, ggml_tensor* rows, int64_t layer, ggml_tensor* positions) {
            return rotate(scope, kStyle, rows, layer, positions);
          }};
}

// Softmax-routed experts, their weights normalised over the chosen ones.
ggml_tensor* expert_ffn(const GraphScope& scope, ggml_tensor* x, int64_t layer);
void add_expert_weights(const Hyperparameters& hp, int64_t layer, std::vector<WeightSpec>& specs);

}  // namespace ctxzip::arch
