// The supported architectures: what each needs from a file and how its graph is built.
#pragma once

#include <string>
#include <vector>

#include "attention/seam.h"
#include "model/weights.h"

namespace ctxzip {

// Leaves of a graph; the engine fills them before computing.
struct GraphInputs {
  ggml_tensor* tokens = nullptr;     // i32 (n_tokens)
  ggml_tensor* positions = nullptr;  // i32 (n_tokens)
  // i32 (n_outputs): tokens whose logits are wanted; null: none are, and nothing after the last
  // layer's attention is computed.
  ggml_tensor* output_rows = nullptr;
};

// What a graph is built from, and in.
struct GraphScope {
  const Hyperparameters& hp;
  const Weights& weights;
  ggml_context* context;
  ggml_cgraph* graph;
};

struct Architecture {
  const char* name;
  // Sets what differs between architectures (rope type, ...) and refuses what it cannot run.
  void (*complete)(const GgufFile& file, Hyperparameters& hp);
  std::vector<WeightSpec> (*weights)(const GgufFile& file, const Hyperparameters& hp);
  // Returns the logits (n_outputs, n_vocab), or null when the pass ends before there are any.
  ggml_tensor* (*build)(const GraphScope& scope, const GraphInputs& inputs, AttentionSeam& seam);
  // Heads (n_tokens, n_head, head_dim) of a layer's queries or keys, rotated to their positions
  // (n_tokens).
  ggml_tensor* (*rotate)(const GraphScope& scope, ggml_tensor* rows, int64_t layer,
                         ggml_tensor* positions);
};

// Null for an unsupported name.
const Architecture* find_architecture(const std::string& name);
// "llama, qwen2"
std::string architecture_names();

extern const Architecture kDeepseek2Architecture;
extern const Architecture kGemma3Architecture;
extern const Architecture kGraniteHybridArchitecture;
extern const Architecture kKimiLinearArchitecture;
extern const Architecture kKimiLinearRopeArchitecture;
extern const Architecture kLlamaArchitecture;
extern const Architecture kQwen2Architecture;
extern const Architecture kQwen3Architecture;
extern const Architecture kQwen3MoeArchitecture;
extern const Architecture kSmolLm3Architecture;

}  // namespace ctxzip
