// The rows that a session adds after its context, in stores for each kind of layer.
#pragma once

#include <cstdint>

#include "cache/dense_cache.h"
#include "cache/layer_map.h"

namespace ctxzip {

class Tail {
 public:
  // `global`, `local`: shapes of the two kinds' stores. Memory follows the rows that are written.
  // Throws Error{kOutOfMemory}.
  Tail(const LayerMap& layers, const KvShape& global, const KvShape& local, int64_t capacity)
      : window_rows_(layers.window_rows()), global_(global, capacity), local_(local, capacity) {}

  int64_t n_rows() const { return global_.n_rows(); }
  int64_t capacity() const { return global_.capacity(); }
  DenseCache& global() { return global_; }
  DenseCache& local() { return local_; }

  void extend(int64_t n) {
    global_.extend(n);
    local_.extend(n);
  }
  void truncate(int64_t n_rows) {
    global_.truncate(n_rows);
    local_.truncate(n_rows);
  }
  // Gives back what local layers will not read again unless the tail is cut below its present end.
  void forget_hidden() {
    if (n_rows() > window_rows_) local_.forget(n_rows() - window_rows_);
  }

 private:
  int64_t window_rows_;
  DenseCache global_;
  DenseCache local_;
};

}  // namespace ctxzip
