// A picture of what each head kept of a text.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ctxzip/context.h"

namespace ctxzip::eval {

// A PNG file: a band for each head from the first layer's at the top, with a gap between layers;
// the text runs from left to right. Dark blue: nothing of that part was kept, yellow: all of it.
std::vector<std::byte> heatmap_png(const KeptMap& map, int64_t n_kv_head);

// Pixels of such a picture.
struct PictureSize {
  int64_t width = 0;
  int64_t height = 0;
};
PictureSize heatmap_size(const KeptMap& map, int64_t n_kv_head);

// "#rrggbb" of a share 0..1, as in the picture.
std::string heatmap_colour(double share);

}  // namespace ctxzip::eval
