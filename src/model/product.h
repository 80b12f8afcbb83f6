// Products of weights and activations in a graph.
#pragma once

#include "model/weights.h"

struct ggml_context;
struct ggml_tensor;

namespace ctxzip {

// weight (n_out, n_in) times x (n_tokens, n_in): (n_tokens, n_out), f32. One token takes ggml's own
// operation on the form that is best for it; batches take the fastest of ggml's on the mapped form
// and ours, by type and number of tokens (docs/benchmarks.md has the comparison).
ggml_tensor* matrix_product(ggml_context* context, const MatrixWeight& weight, ggml_tensor* x);

}  // namespace ctxzip
