// VestigeKV's ranking (recall/sigma.h) as scores of rows without rotation: what is left of a latent
// row's branch, or of a key where there is no latent attention, when the slow part of the text is
// removed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/dense_cache.h"
#include "score/scores.h"

namespace ctxzip {

// What is low-passed: the branch is the method, the others are compared with it.
enum class RowPart : uint8_t { kBranch, kContent, kWhole };

// Rows that are low-passed together; shorter texts are one block.
constexpr int64_t kSigmaBlockRows = 4096;

// Values (n, dimensions of the part) of rows [first_row, first_row + n) of one head, whose first
// `content` values are the content part; 0: keys, which are all branch.
std::vector<float> row_parts(const DenseCache& rows, int64_t layer, int64_t kv_head,
                             int64_t content, RowPart part, int64_t first_row, int64_t n);

// sigma (out.size()) of values (out.size(), dim) in blocks of `block_rows`, each low-passed alone.
// A last block that is too short to be closed goes with the one before it.
void block_sigma(std::span<const float> values, int64_t dim, int64_t block_rows,
                 std::span<float> out);

// Of a context that starts at row `n_prefix`, each head by itself. Sinks that the prefix does not
// hold score highest.
Scores sigma_scores(const DenseCache& rows, int64_t content, RowPart part, int64_t block_rows,
                    int64_t n_prefix, int64_t n_context);

}  // namespace ctxzip
