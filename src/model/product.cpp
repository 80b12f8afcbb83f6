#include "model/product.h"

#include <ggml-backend.h>
#include <ggml.h>

#include "kernels/matmul.h"

namespace ctxzip {
namespace {

// Types for which unpacking wins on AVX2 (build/bench_matmul): those without a blocked product in
// ggml.
bool unpacking_wins(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_1:
    case GGML_TYPE_Q5_0:
    case GGML_TYPE_Q5_1:
    case GGML_TYPE_Q8_0:
      return true;
    default:
      return false;
  }
}

void multiply_node(ggml_tensor* dst, int thread, int n_threads, void*) {
  const ggml_tensor* weight = dst->src[0];
  const ggml_tensor* x = dst->src[1];
  const ggml_type_traits* traits = ggml_get_type_traits(weight->type);
  const WeightMatrix matrix = {
      .data = static_cast<const std::byte*>(weight->data),
      .row_bytes = weight->nb[1],
      .n_in = weight->ne[0],
      .n_out = weight->ne[1],
      .block_values = ggml_blck_size(weight->type),
      .block_bytes = ggml_type_size(weight->type),
      .unpack = traits->to_float,
  };
  for (int64_t first = thread * kMatmulRows; first < matrix.n_out;
       first += n_threads * kMatmulRows) {
    tuned_matmul_kernels().multiply(matrix, first, static_cast<const float*>(x->data), x->ne[0],
                                    x->ne[1], static_cast<float*>(dst->data), matrix.n_out);
  }
}

}  // namespace

ggml_tensor* matrix_product(ggml_context* context, ggml_tensor* weight, ggml_tensor* x) {
  const bool plain = weight->buffer != nullptr && ggml_backend_buffer_is_host(weight->buffer);
  const bool batch = x->ne[1] >= kMatmulTokens && ggml_n_dims(x) <= 2 && ggml_is_contiguous(x);
  if (!plain || !batch || !unpacking_wins(weight->type)) return ggml_mul_mat(context, weight, x);
  ggml_tensor* args[] = {weight, x};
  return ggml_custom_4d(context, GGML_TYPE_F32, weight->ne[1], x->ne[1], 1, 1, args, 2,
                        multiply_node, GGML_N_TASKS_MAX, nullptr);
}

}  // namespace ctxzip
