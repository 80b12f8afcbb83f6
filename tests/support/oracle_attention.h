// The seam written with plain ggml operations and explicit masks: what the kernels must equal.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "attention/seam.h"
#include "score/kvzip.h"

namespace ctxzip::test {

// Attends to all rows of `past` that the mask leaves, and causally to the batch's own rows, which
// come directly after them; nothing is stored. `past` must have f32 rows. For one graph.
class OracleAttention final : public AttentionSeam {
 public:
  // Masks the context rows outside `kept` (null: none), and in local layers what is beyond the
  // window.
  OracleAttention(const FullRows& past, const KeepSet* kept, const AttentionShape& shape);

  ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                      const AttentionInput& in, bool output_unused) override;
  ggml_tensor* state_before(ggml_context* context, int64_t layer) override;
  void keep_state(ggml_context*, ggml_cgraph*, int64_t,
                  std::initializer_list<ggml_tensor*>) override {}

 private:
  Segment past_rows(int64_t layer, int64_t kv_head) const;
  ggml_tensor* leaf(const void* rows, int64_t n_rows) const;
  ggml_tensor* mask(int64_t layer, int64_t kv_head, int64_t n_tokens) const;

  FullRows past_;
  const KeepSet* kept_;
  AttentionShape shape_;
  ggml_context_ptr leaves_;
};

}  // namespace ctxzip::test
