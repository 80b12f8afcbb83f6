// How a batch of many tokens is cut into tiles, the work items of its attention.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"

namespace ctxzip {

// About 96 query rows share one conversion of a block of rows.
inline int64_t tile_tokens(int64_t group) {
  return std::clamp<int64_t>(96 / group, 4, kMaxTileTokens);
}

struct TileBatch {
  int64_t n_tokens;
  int64_t q_stride;    // floats from a token's queries to the next one's
  int64_t out_stride;  // and of its outputs
  int64_t per_tile;
  int64_t n_tiles;

  // q: (n_tokens, n_head, head_dim).
  TileBatch(const AttentionShape& shape, const ggml_tensor& q)
      : n_tokens(q.ne[2]),
        q_stride(q.ne[0] * q.ne[1]),
        out_stride(shape.n_value() * q.ne[1]),
        per_tile(tile_tokens(shape.group)),
        n_tiles((n_tokens + per_tile - 1) / per_tile) {}

  // The first token of the item-th tile and their number. The last tiles see the most rows: they
  // go first, so that threads finish together.
  int64_t first(int64_t item) const { return (n_tiles - 1 - item) * per_tile; }
  int64_t size(int64_t first) const { return std::min(per_tile, n_tokens - first); }
};

}  // namespace ctxzip
