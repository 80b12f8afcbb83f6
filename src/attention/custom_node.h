// What every seam on CPU builds its nodes with.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "kernels/row_type.h"

namespace ctxzip {

// An f32 node (ne2, ne1, ne0) that all threads of the graph call `function` for.
ggml_tensor* custom_node(ggml_context* context, int64_t ne0, int64_t ne1, int64_t ne2,
                         std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function,
                         void* data);

// One row as a store holds it: f32 or f16.
void store_row(RowType type, const float* in, std::byte* out, int64_t dim);

}  // namespace ctxzip
