// The seam written with plain ggml operations and explicit masks: what the kernels must equal.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "attention/seam.h"
#include "cache/dense_cache.h"
#include "cache/keep_set.h"

namespace ctxzip::test {

// Attends to all rows of `past` that the mask leaves, and causally to the batch's own rows; nothing
// is stored. `past` must have f32 rows. For one graph.
class OracleAttention final : public AttentionSeam {
 public:
  // Masks the context rows outside `kept` (null: none).
  OracleAttention(const DenseCache& past, int64_t n_prefix, const KeepSet* kept, float scale);

  ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int64_t layer, ggml_tensor* q,
                      ggml_tensor* k, ggml_tensor* v, bool output_unused) override;

 private:
  ggml_tensor* past_rows(const std::byte* rows) const;
  ggml_tensor* mask(int64_t layer, int64_t kv_head, int64_t n_tokens) const;

  const DenseCache& past_;
  int64_t n_prefix_;
  const KeepSet* kept_;
  float scale_;
  ggml_context_ptr leaves_;
};

}  // namespace ctxzip::test
