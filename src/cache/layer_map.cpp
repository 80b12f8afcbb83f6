#include "cache/layer_map.h"

#include "core/fail.h"

namespace ctxzip {

bool LayerMap::valid(const std::string& kinds, int64_t window) {
  const bool letters = kinds.find_first_not_of("glr") == std::string::npos;
  const bool any_local = kinds.find('l') != std::string::npos;
  return letters && (any_local ? window >= 1 : window == 0);
}

LayerMap::LayerMap(std::string kinds, int64_t window) : kinds_(std::move(kinds)), window_(window) {
  CHECK(valid(kinds_, window_));
  for (int64_t layer = 0; layer < n_layer(); ++layer) {
    const auto before = kinds_.begin() + layer;
    index_.push_back(std::count(kinds_.begin(), before, *before));
    if (kind(layer) == LayerKind::kGlobal) global_layers_.push_back(layer);
  }
}

LayerMap LayerMap::all_global(int64_t n_layer) {
  return LayerMap(std::string(static_cast<size_t>(n_layer), 'g'), 0);
}

}  // namespace ctxzip
