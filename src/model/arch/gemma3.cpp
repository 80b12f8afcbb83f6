#include <cmath>

#include "core/fail.h"
#include "model/arch/blocks.h"

namespace ctxzip {
namespace {

constexpr arch::DecoderStyle kStyle = {.head_norm = true, .post_norm = true, .gelu = true};
constexpr int64_t kUsualPattern = 6;  // five local layers, then a global one
constexpr int64_t kLayersOf27B = 62;  // the one size that scales attention by its embedding

std::string layer_kinds(const GgufFile& file, const Hyperparameters& hp) {
  const std::string key = hp.architecture + ".attention.sliding_window_pattern";
  const std::vector<int64_t> pattern = file.find_ints(key);
  std::string kinds(static_cast<size_t>(hp.n_layer), 'g');
  if (pattern.size() > 1) {
    if (static_cast<int64_t>(pattern.size()) < hp.n_layer) {
      fail(ErrorKind::kCorruptFile, "{}: metadata '{}' has {} entries for {} layers", file.path(),
           key, pattern.size(), hp.n_layer);
    }
    for (size_t layer = 0; layer < kinds.size(); ++layer) {
      if (pattern[layer] != 0) kinds[layer] = 'l';
    }
    return kinds;
  }
  const int64_t step = pattern.empty() ? kUsualPattern : pattern[0];
  for (int64_t layer = 0; layer < hp.n_layer; ++layer) {
    if (step <= 0 || layer % step < step - 1) kinds[static_cast<size_t>(layer)] = 'l';
  }
  return kinds;
}

void complete(const GgufFile& file, Hyperparameters& hp) {
  const std::string prefix = hp.architecture + ".";
  read_plain_heads(file, hp);
  refuse_experts(file, hp);
  hp.embedding_scale = std::sqrt(static_cast<float>(hp.n_embd));
  hp.rope.type = GGML_ROPE_TYPE_NEOX;
  hp.logit_softcap =
      static_cast<float>(file.find_float(prefix + "final_logit_softcapping").value_or(0));
  if (hp.n_layer == kLayersOf27B) {
    hp.attention_scale = 1 / std::sqrt(static_cast<float>(hp.n_embd / hp.n_head));
  }
  const int64_t window = file.find_int(prefix + "attention.sliding_window").value_or(0);
  if (window <= 0) return;
  const std::string kinds = layer_kinds(file, hp);
  if (kinds.find('g') == std::string::npos) {
    fail(ErrorKind::kUnsupported,
         "{}: all of its {} layers have a sliding window: there is nothing to evict", file.path(),
         hp.n_layer);
  }
  const bool any_local = kinds.find('l') != std::string::npos;
  hp.layers = LayerMap(kinds, any_local ? window : 0);
  if (any_local) {
    hp.rope.base_local =
        static_cast<float>(file.find_float(prefix + "rope.freq_base_swa").value_or(10000));
  }
}

}  // namespace

const Architecture kGemma3Architecture = arch::decoder_architecture<kStyle>("gemma3", complete);

}  // namespace ctxzip
