// Tokens through the model: a prefill, whose rows stay, and a pass, whose rows are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "attention/cache_attention.h"
#include "cache/recurrent_states.h"
#include "engine/graph_runner.h"

namespace ctxzip {

// A store for the rows of local layers that slides: whatever the length of the text it holds a
// window and a batch.
DenseCache make_window_store(const detail::ModelState& model, int64_t batch_tokens);

// Where a prefill writes: all rows of global layers, the newest ones of local layers, the states of
// recurrent ones. The sinks, if any, note down its attention to what `global` holds.
struct PrefillStores {
  DenseCache& global;
  DenseCache& window;  // made for batches of at least `batch_tokens`
  StateTrack& states;
  const ScoreSink* score = nullptr;
  const QuerySink* queries = nullptr;
};

// Appends the rows of `tokens`, which attend to `past`, to what the stores hold, and to each other.
// `on_rows` is called with the tokens done after each batch. Throws Error: kOutOfMemory,
// kCancelled.
void prefill_rows(const detail::ModelState& model, GraphRunner& runner, const SegmentTable& past,
                  std::span<const Token> tokens, int64_t first_position,
                  const PrefillStores& stores, int64_t batch_tokens, const CancelToken* cancel,
                  const std::function<void(int64_t)>& on_rows);

// One batch after `past`, its own rows as segment `own_place` among those; they take one layer's
// memory at a time and are gone afterwards, as are its states. `score` may be null. Logits as
// GraphRunner::run.
std::span<const float> run_pass(const detail::ModelState& model, GraphRunner& runner,
                                const SegmentTable& past, int own_place, const ScoreSink* score,
                                const Batch& batch, const RunControl& control);

}  // namespace ctxzip
