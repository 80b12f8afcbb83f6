// What a session adds after its context: rows, in stores for each kind of layer, and the states of
// recurrent layers.
#pragma once

#include <cstdint>

#include "cache/dense_cache.h"
#include "cache/layer_map.h"
#include "cache/recurrent_states.h"
#include "core/fail.h"

namespace ctxzip {

class Tail {
 public:
  // `global`, `local`: shapes of the two kinds' stores. Memory follows the rows that are written.
  // `start`: the states at the context's end, which must outlive the tail. Throws
  // Error{kOutOfMemory}.
  Tail(const LayerMap& layers, const KvShape& global, const KvShape& local,
       const RecurrentStates& start, int64_t capacity)
      : window_rows_(layers.window_rows()),
        global_(global, capacity),
        local_(local, capacity),
        start_(start),
        states_(start) {}

  int64_t n_rows() const { return global_.n_rows(); }
  int64_t capacity() const { return global_.capacity(); }
  DenseCache& global() { return global_; }
  DenseCache& local() { return local_; }
  StateTrack& states() { return states_; }

  // After a batch of n tokens.
  void extend(int64_t n) {
    global_.extend(n);
    local_.extend(n);
    states_.advance();
  }
  // With recurrent layers only to 0 or to where the turn began: states cannot be unwound.
  void truncate(int64_t n_rows) {
    if (start_.n_layer > 0 && n_rows < global_.n_rows()) {
      CHECK(n_rows == 0 || n_rows == turn_rows_);
      states_.set(n_rows == 0 ? start_ : turn_states_);
    }
    global_.truncate(n_rows);
    local_.truncate(n_rows);
  }
  // From here on the tail will not be cut below its present end, unless to nothing: remembers the
  // states, and gives back rows of local layers that are out of reach.
  void begin_turn() {
    turn_rows_ = n_rows();
    if (start_.n_layer > 0 && turn_rows_ > 0) turn_states_ = states_.now();
    if (n_rows() > window_rows_) local_.forget(n_rows() - window_rows_);
  }

 private:
  int64_t window_rows_;
  DenseCache global_;
  DenseCache local_;
  const RecurrentStates& start_;
  StateTrack states_;
  int64_t turn_rows_ = 0;
  RecurrentStates turn_states_;  // if turn_rows_ > 0
};

}  // namespace ctxzip
