#include "score/knorm.h"

#include <cmath>
#include <vector>

#include "cache/read_row.h"

namespace ctxzip {

void knorm_scores(const DenseCache& rows, int64_t first_row, int64_t begin, int64_t n,
                  Scores& scores) {
  const KvShape& shape = rows.shape();
  std::vector<float> key(static_cast<size_t>(shape.head_dim));
  for (int64_t layer = 0; layer < shape.n_layer; ++layer) {
    for (int64_t kv_head = 0; kv_head < shape.n_kv_head; ++kv_head) {
      for (int64_t row = 0; row < n; ++row) {
        read_row(shape.row_type, rows.k_rows(layer, kv_head), first_row + row, key);
        double square = 0;
        for (const float value : key)
          square += static_cast<double>(value) * static_cast<double>(value);
        scores.head(layer, kv_head)[begin + row] = -static_cast<float>(std::sqrt(square));
      }
    }
  }
}

}  // namespace ctxzip
