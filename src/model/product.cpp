#include "model/product.h"

#include <ggml.h>

#include <limits>
#include <optional>

#include "kernels/matmul.h"

namespace ctxzip {
namespace {

std::optional<WeightType> weight_type(ggml_type type) {
  switch (type) {
    case GGML_TYPE_Q4_1:
      return WeightType::kQ4_1;
    case GGML_TYPE_Q5_0:
      return WeightType::kQ5_0;
    case GGML_TYPE_Q5_1:
      return WeightType::kQ5_1;
    case GGML_TYPE_Q8_0:
      return WeightType::kQ8_0;
    default:
      return std::nullopt;
  }
}

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Tokens from which on unpacking wins.
int64_t fewest_unpacked(WeightType type) {
  constexpr int64_t kFewest[kWeightTypes] = {2, 8, 4, 32};
  return kFewest[static_cast<int>(type)];
}

// Tokens from which on ggml's product with the mapped form beats the one with the repacked form.
int64_t fewest_mapped(ggml_type type) { return type == GGML_TYPE_Q4_K ? 32 : kNever; }

void multiply_node(ggml_tensor* dst, int thread, int n_threads, void*) {
  const ggml_tensor* weight = dst->src[0];
  const ggml_tensor* x = dst->src[1];
  const WeightMatrix matrix = {
      .data = static_cast<const std::byte*>(weight->data),
      .row_bytes = weight->nb[1],
      .n_in = weight->ne[0],
      .n_out = weight->ne[1],
      .type = *weight_type(weight->type),
  };
  for (int64_t first = thread * kMatmulRows; first < matrix.n_out;
       first += n_threads * kMatmulRows) {
    tuned_matmul_kernels().multiply(matrix, first, static_cast<const float*>(x->data), x->ne[0],
                                    x->ne[1], static_cast<float*>(dst->data), matrix.n_out);
  }
}

}  // namespace

ggml_tensor* matrix_product(ggml_context* context, const MatrixWeight& weight, ggml_tensor* x) {
  ggml_tensor* mapped = weight.mapped;
  const int64_t n_tokens = x->ne[1];
  const auto type = weight_type(mapped->type);
  const bool unpacked = type && n_tokens >= fewest_unpacked(*type) && mapped == weight.best_for_one;
  if (!unpacked || ggml_n_dims(x) > 2 || !ggml_is_contiguous(x)) {
    const bool large = n_tokens >= fewest_mapped(mapped->type);
    return ggml_mul_mat(context, large ? mapped : weight.best_for_one, x);
  }
  ggml_tensor* args[] = {mapped, x};
  return ggml_custom_4d(context, GGML_TYPE_F32, mapped->ne[1], n_tokens, 1, 1, args, 2,
                        multiply_node, GGML_N_TASKS_MAX, nullptr);
}

}  // namespace ctxzip
