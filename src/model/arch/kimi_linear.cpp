#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.mixer = &arch::kLatentAttention,
                                       .recurrent = &arch::kDeltaAttention};

void complete(const GgufFile& file, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".";
  read_hybrid_layers(file, hp);
  arch::read_latent_heads(file, hp);
  hp.rotary = hp.architecture == kKimiLinearRopeArchitecture.name;
  hp.recurrent = {.n_head = hp.n_head,
                  .head_dim = file.require_int(prefix + "kda.head_dim", 1, 1024),
                  .state_dim = 0,
                  .n_group = 0,
                  .n_tap = file.require_int(prefix + "ssm.conv_kernel", 2, 16)};
  const RecurrentSettings& shape = hp.recurrent;
  if (hp.layers.n_recurrent() > 0) {
    hp.state_size = shape.n_head * shape.head_dim * (3 * (shape.n_tap - 1) + shape.head_dim);
  }
  if (file.find_int(prefix + "expert_count").value_or(0) == 0) return;
  read_experts(file, 0, hp);
  hp.experts.n_ff_shared =
      hp.experts.n_ff * file.require_int(prefix + "expert_shared_count", 1, 1024);
}

}  // namespace

const Architecture kKimiLinearArchitecture =
    arch::decoder_architecture<kStyle>("kimi-linear", complete);
// The same graph with a rotated branch, as a control for what is claimed of models without rotation
// (docs/results-vestigekv.md). Its own name keeps others from running such files unrotated.
const Architecture kKimiLinearRopeArchitecture =
    arch::decoder_architecture<kStyle>("kimi-linear-rope", complete);

}  // namespace ctxzip
