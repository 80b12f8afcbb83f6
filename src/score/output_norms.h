// How much of a cached value reaches the residual stream: the column factor of KVzip+.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/dense_cache.h"
#include "model/model_state.h"

namespace ctxzip {

// log of the norm of W v, where W is the part of the attention's output projection that a query
// head's output goes through: rows [first_row, first_row + n) of `rows` (global layers) become
// places [begin, begin + n) of `logs` (global layer, query head, n_context).
void output_norm_logs(const detail::ModelState& model, const DenseCache& rows, int64_t first_row,
                      int64_t begin, int64_t n, int64_t n_context, std::vector<float>& logs);

}  // namespace ctxzip
