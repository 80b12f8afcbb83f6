// Products of weights and activations in a graph.
#pragma once

struct ggml_context;
struct ggml_tensor;

namespace ctxzip {

// weight (n_out, n_in) times x (n_tokens, n_in): (n_tokens, n_out), f32. ggml's own operation,
// except for batches with a weight type that ggml multiplies one row at a time: those are unpacked
// to float once a batch (docs/benchmarks.md has the comparison, type by type).
ggml_tensor* matrix_product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x);

}  // namespace ctxzip
