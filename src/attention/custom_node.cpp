#include "attention/custom_node.h"

#include <cstring>
#include <vector>

#include "kernels/half.h"

namespace ctxzip {

ggml_tensor* custom_node(ggml_context* context, int64_t ne0, int64_t ne1, int64_t ne2,
                         std::initializer_list<ggml_tensor*> sources, ggml_custom_op_t function,
                         void* data) {
  std::vector<ggml_tensor*> args(sources);
  return ggml_custom_4d(context, GGML_TYPE_F32, ne0, ne1, ne2, 1, args.data(),
                        static_cast<int>(args.size()), function, GGML_N_TASKS_MAX, data);
}

void store_row(RowType type, const float* in, std::byte* out, int64_t dim) {
  if (type == RowType::kF32) {
    std::memcpy(out, in, static_cast<size_t>(dim) * sizeof(float));
  } else {
    to_f16(in, reinterpret_cast<uint16_t*>(out), dim);
  }
}

}  // namespace ctxzip
