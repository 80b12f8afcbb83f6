// Pieces that several architectures share; each adds nodes for one step of a layer. Activations are
// f32 (n_tokens, n_embd).
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

// The first n_rot dimensions of rows (n_tokens, n_head, dim).
ggml_tensor* rotate(const GraphScope& scope, ggml_tensor* rows, int64_t n_rot, int64_t layer,
                    ggml_tensor* positions, ggml_tensor* factors);

// down(act(gate x) * up x), with the weights ffn_gate<suffix> and so on
ggml_tensor* gated_ffn(const GraphScope& scope, ggml_tensor* x, int64_t layer, const char* suffix,
                       bool gelu);

// The weights of one layer, as its graph names them.
class LayerWeights {
 public:
  LayerWeights(std::vector<WeightSpec>& specs, int64_t layer) : specs_(specs), layer_(layer) {}

  int64_t layer() const { return layer_; }
  void vector(const char* name, int64_t n, bool required = true);
  // stem.weight (n_out, n_in), and stem.bias where the file has one.
  void matrix(const char* stem, int64_t n_in, int64_t n_out);
  // One matrix for each expert.
  void experts(const char* name, int64_t n_in, int64_t n_out, int64_t n_expert);
  // Used as it lies in the file, with dimensions from inner to outer; f32 if `plain`.
  void tensor(const char* name, std::array<int64_t, 3> ne, bool plain);

 private:
  std::vector<WeightSpec>& specs_;
  int64_t layer_;
};

struct DecoderStyle;

// One layer of a graph that is being built.
struct LayerScope {
  const GraphScope& scope;
  const DecoderStyle& style;
  const GraphInputs& inputs;
  AttentionSeam& seam;
  int64_t layer;
  bool output_unused;  // nothing after this layer's mixer is wanted
};

// What lets the tokens of a layer see each other.
struct Mixer {
  // Normed activations to (n_tokens, n), what the output projection takes; null where the pass
  // ends.
  ggml_tensor* (*build)(const LayerScope& layer, ggml_tensor* x);
  void (*add_weights)(const Hyperparameters& hp, const DecoderStyle& style, LayerWeights& weights);
  const char* output;  // stem of the output projection
};

extern const Mixer kGroupedAttention;  // heads with keys and values of their own (GQA)
extern const Mixer kLatentAttention;   // one latent row for all heads (MLA), in absorbed form
extern const Mixer kDeltaAttention;    // Kimi's delta net (KDA), recurrent
extern const Mixer kStateSpace;        // Mamba2, recurrent

// How a decoder stack differs from the plain one (pre-norm, rope everywhere, SwiGLU).
struct DecoderStyle {
  const Mixer* mixer = &kGroupedAttention;
  const Mixer* recurrent = nullptr;  // of the recurrent layers
  bool head_norm = false;            // q and k of each head are normed before rope (attn_q_norm...)
  bool post_norm = false;            // attention and feed-forward outputs are normed (post_*_norm)
  bool gelu = false;                 // GeGLU instead of SwiGLU
  int64_t no_rope_step = 0;          // every so many layers one goes without rope; 0: none does
  bool rope_factors = false;         // rope_freqs.weight is honoured where the file has it

  const Mixer& mixer_of(const Hyperparameters& hp, int64_t layer) const {
    return hp.layers.is_recurrent(layer) ? *recurrent : *mixer;
  }
};

// Heads (n_tokens, n_head, head_dim) of a layer's queries or keys, rotated to their positions if
// the layer rotates.
ggml_tensor* rotate_heads(const GraphScope& scope, const DecoderStyle& style, ggml_tensor* rows,
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
            return rotate_heads(scope, kStyle, rows, layer, positions);
          }};
}

// Routed experts, and the one that every token takes where the model has it.
ggml_tensor* expert_ffn(const GraphScope& scope, ggml_tensor* x, int64_t layer);
void add_expert_weights(const Hyperparameters& hp, LayerWeights& weights);

// A short causal convolution of each channel over the batch x (n_tokens, channel) and the inputs
// before it, then SiLU. `taps` (channel, n_tap - 1) are those inputs and become the batch's last
// ones; weight (channel, n_tap), bias (channel) or null.
ggml_tensor* convolve(ggml_context* context, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias,
                      ggml_tensor*& taps);

// The keys of latent attention. Throws kCorruptFile, kUnsupported (files whose attn_kv_b is not
// split for it, sizes beyond the kernels').
void read_latent_heads(const GgufFile& file, Hyperparameters& hp);

}  // namespace ctxzip::arch
