// What recurrent layers (delta nets, state spaces) remember of everything before one position: for
// each layer a fixed number of values, whatever the length.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace ctxzip {

struct RecurrentStates {
  int64_t n_layer = 0;        // recurrent layers
  int64_t size = 0;           // values of one layer: convolution taps, then the state matrices
  std::vector<float> values;  // (layer, size)

  float* layer(int64_t index) { return values.data() + index * size; }
  const float* layer(int64_t index) const { return values.data() + index * size; }
  int64_t bytes() const { return static_cast<int64_t>(values.size() * sizeof(float)); }
  bool operator==(const RecurrentStates&) const = default;
};

// Before the first token.
inline RecurrentStates empty_states(int64_t n_layer, int64_t size) {
  return {.n_layer = n_layer,
          .size = size,
          .values = std::vector<float>(static_cast<size_t>(n_layer * size))};
}

// The states of a sequence that grows: a batch reads `now` and writes `next`, so that one that
// fails or is cancelled leaves no trace.
class StateTrack {
 public:
  explicit StateTrack(RecurrentStates start) : now_(std::move(start)), next_(now_) {}

  const RecurrentStates& now() const { return now_; }
  RecurrentStates& next() { return next_; }
  // After a batch that succeeded.
  void advance() { std::swap(now_, next_); }
  void set(const RecurrentStates& states) { now_ = states; }

 private:
  RecurrentStates now_;
  RecurrentStates next_;
};

}  // namespace ctxzip
