// All that a zipped context holds, over every kind of layer.
#pragma once

#include <cstdint>

#include "cache/layer_map.h"
#include "cache/recurrent_states.h"
#include "cache/zipped_rows.h"

namespace ctxzip {

struct ContextRows {
  LayerMap layers;
  ZippedRows global;  // of the global layers: prefix and kept rows
  // Of the local layers: the last rows before the context's end, as many as a window still needs,
  // all of them held as if they were a prefix.
  ZippedRows local;
  RecurrentStates states;  // of the recurrent layers, at the context's end

  int64_t n_positions() const { return global.n_positions(); }
  int64_t kv_bytes() const { return global.kv_bytes() + local.kv_bytes(); }
};

// Rows that every head of a local layer holds after n_positions tokens.
int64_t frozen_window_rows(const LayerMap& layers, int64_t n_positions);

// What layers that are never evicted hold at one position.
struct FrozenLayers {
  ZippedRows window;       // local layers
  RecurrentStates states;  // recurrent layers
};

// Copies the newest rows of `window` (local layers, n_positions tokens seen).
ZippedRows freeze_window(const DenseCache& window, const LayerMap& layers, int64_t n_positions);

}  // namespace ctxzip
