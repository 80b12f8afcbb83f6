// The rotary embedding as a matrix.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_state.h"

namespace ctxzip {

// What a layer's rotation does on average over positions [first, first + n): (head_dim, head_dim),
// row i is where the i-th unit vector goes.
std::vector<double> average_rotation(const detail::ModelState& model, int64_t layer, int64_t first,
                                     int64_t n);

}  // namespace ctxzip
