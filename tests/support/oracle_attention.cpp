#include "support/oracle_attention.h"

#include <cmath>
#include <cstring>

#include "core/fail.h"

namespace ctxzip::test {

OracleAttention::OracleAttention(const FullRows& past, const KeepSet* kept,
                                 const AttentionShape& shape)
    : past_(past),
      kept_(kept),
      shape_(shape),
      leaves_(
          ggml_init({.mem_size = size_t{256} << 20, .mem_buffer = nullptr, .no_alloc = false})) {
  CHECK(past.global.shape().row_type == RowType::kF32);
}

Segment OracleAttention::past_rows(int64_t layer, int64_t kv_head) const {
  const int64_t index = past_.layers.index(layer);
  if (past_.layers.is_local(layer)) return past_.window.window.segment(index, kv_head);
  return past_.global.segment(index, kv_head, 0, past_.global.n_rows());
}

ggml_tensor* OracleAttention::state_before(ggml_context*, int64_t layer) {
  const RecurrentStates& states = past_.window.states;
  ggml_tensor* tensor = ggml_new_tensor_1d(leaves_.get(), GGML_TYPE_F32, states.size);
  std::memcpy(tensor->data, states.layer(past_.layers.index(layer)), ggml_nbytes(tensor));
  return tensor;
}

ggml_tensor* OracleAttention::leaf(const void* rows, int64_t n_rows) const {
  ggml_tensor* tensor =
      ggml_new_tensor_2d(leaves_.get(), GGML_TYPE_F32, past_.global.shape().head_dim, n_rows);
  std::memcpy(tensor->data, rows, ggml_nbytes(tensor));
  return tensor;
}

ggml_tensor* OracleAttention::mask(int64_t layer, int64_t kv_head, int64_t n_tokens) const {
  const int64_t n_past = past_rows(layer, kv_head).n_rows;
  const bool local = past_.layers.is_local(layer);
  ggml_tensor* tensor =
      ggml_new_tensor_2d(leaves_.get(), GGML_TYPE_F32, n_past + n_tokens, n_tokens);
  auto* values = static_cast<float*>(tensor->data);
  for (int64_t token = 0; token < n_tokens; ++token) {
    float* row = values + token * (n_past + n_tokens);
    for (int64_t col = 0; col < n_past + n_tokens; ++col) {
      const int64_t distance = n_past + token - col;
      const bool evictable = col >= past_.n_prefix && col < n_past;
      const bool visible = local ? distance >= 0 && distance < past_.layers.window()
                                 : distance >= 0 && (kept_ == nullptr || !evictable);
      row[col] = visible ? 0.0f : -INFINITY;
    }
    if (kept_ == nullptr || local) continue;
    for (const uint32_t kept : kept_->at(past_.layers.index(layer), kv_head)) {
      row[past_.n_prefix + kept] = 0.0f;
    }
  }
  return tensor;
}

ggml_tensor* OracleAttention::attend(ggml_context* context, ggml_cgraph*, int64_t layer,
                                     const AttentionInput& in, bool output_unused) {
  CHECK(!output_unused);
  const auto [q, k, v, q_unrotated, hidden] = in;
  const int64_t dim = q->ne[0];
  const int64_t n_value = shape_.n_value();
  const int64_t n_tokens = q->ne[2];
  const int64_t n_kv_head = k->ne[1];
  const int64_t group = q->ne[1] / n_kv_head;
  const auto head_rows = [&](ggml_tensor* tensor, int64_t kv_head) {
    ggml_tensor* rows = ggml_view_2d(context, tensor, dim, n_tokens, tensor->nb[2],
                                     static_cast<size_t>(kv_head) * tensor->nb[1]);
    return ggml_cont(context, rows);
  };
  ggml_tensor* out = nullptr;  // (n_head, n_tokens, dim)
  for (int64_t kv_head = 0; kv_head < n_kv_head; ++kv_head) {
    ggml_tensor* keys = head_rows(k, kv_head);
    ggml_tensor* values = v == nullptr ? keys : head_rows(v, kv_head);
    const Segment past = past_rows(layer, kv_head);
    if (past.n_rows > 0) {
      keys = ggml_concat(context, leaf(past.k, past.n_rows), keys, 1);
      values = ggml_concat(context, leaf(past.v, past.n_rows), values, 1);
    }
    values = ggml_view_2d(context, values, n_value, values->ne[1], values->nb[1], 0);
    ggml_tensor* queries = ggml_view_3d(context, q, dim, group, n_tokens, q->nb[1], q->nb[2],
                                        static_cast<size_t>(kv_head * group) * q->nb[1]);
    queries = ggml_cont(context, ggml_permute(context, queries, 0, 2, 1, 3));
    ggml_tensor* weights = ggml_soft_max_ext(context, ggml_mul_mat(context, keys, queries),
                                             mask(layer, kv_head, n_tokens), shape_.scale, 0);
    ggml_tensor* attended =
        ggml_mul_mat(context, ggml_cont(context, ggml_transpose(context, values)), weights);
    out = out == nullptr ? attended : ggml_concat(context, out, attended, 2);
  }
  out = ggml_cont(context, ggml_permute(context, out, 0, 2, 1, 3));
  return ggml_reshape_2d(context, out, n_value * n_kv_head * group, n_tokens);
}

}  // namespace ctxzip::test
