// Which kind of store holds the rows of each of a model's layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace ctxzip {

enum class LayerKind : char {
  kGlobal = 'g',     // attends to everything before it; its context rows may be evicted
  kLocal = 'l',      // attends to a sliding window; never evicted, keeps only that window
  kRecurrent = 'r',  // has no rows but a state of fixed size (cache/recurrent_states.h)
};

class LayerMap {
 public:
  LayerMap() = default;
  // `kinds`: one LayerKind letter per layer. `window`: rows that a token of a local layer sees,
  // its own included; at least 1 if there is such a layer, else 0.
  LayerMap(std::string kinds, int64_t window);
  static LayerMap all_global(int64_t n_layer);

  int64_t n_layer() const { return static_cast<int64_t>(kinds_.size()); }
  int64_t n_global() const { return static_cast<int64_t>(global_layers_.size()); }
  int64_t n_local() const { return count(LayerKind::kLocal); }
  int64_t n_recurrent() const { return count(LayerKind::kRecurrent); }
  LayerKind kind(int64_t layer) const {
    return static_cast<LayerKind>(kinds_[static_cast<size_t>(layer)]);
  }
  bool is_local(int64_t layer) const { return kind(layer) == LayerKind::kLocal; }
  bool is_recurrent(int64_t layer) const { return kind(layer) == LayerKind::kRecurrent; }
  // The layer's place among the layers of its kind.
  int64_t index(int64_t layer) const { return index_[static_cast<size_t>(layer)]; }
  // Layer numbers of the global layers, ascending.
  const std::vector<int64_t>& global_layers() const { return global_layers_; }
  const std::string& kinds() const { return kinds_; }
  int64_t window() const { return window_; }
  // Rows before a token that a local layer still needs.
  int64_t window_rows() const { return n_local() == 0 ? 0 : window_ - 1; }

  // Whether `kinds` and `window` may be given to the constructor.
  static bool valid(const std::string& kinds, int64_t window);
  bool operator==(const LayerMap&) const = default;

 private:
  int64_t count(LayerKind kind) const {
    return std::count(kinds_.begin(), kinds_.end(), static_cast<char>(kind));
  }

  std::string kinds_;
  int64_t window_ = 0;
  std::vector<int64_t> index_;
  std::vector<int64_t> global_layers_;
};

}  // namespace ctxzip
