// Weights read outside a graph, whatever form the graph's own copy has.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/gguf_file.h"

namespace ctxzip {

// Row `row` of a matrix (rows, out.size()) of the file, as floats.
void read_weight_row(const GgufFile& file, const std::string& name, int64_t row,
                     std::span<float> out);

}  // namespace ctxzip
