#include "model/weight_rows.h"

#include <cstring>

#include "core/fail.h"

namespace ctxzip {

void read_weight_row(const GgufFile& file, const std::string& name, int64_t row,
                     std::span<float> out) {
  const TensorInfo* const tensor = file.find_tensor(name);
  CHECK(tensor != nullptr);
  CHECK(tensor->ne[0] == static_cast<int64_t>(out.size()) && row >= 0 && row < tensor->ne[1]);
  const std::byte* const from =
      tensor->data + static_cast<size_t>(row) * ggml_row_size(tensor->type, tensor->ne[0]);
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(out.data(), from, out.size_bytes());
  } else {
    ggml_get_type_traits(tensor->type)->to_float(from, out.data(), tensor->ne[0]);
  }
}

}  // namespace ctxzip
