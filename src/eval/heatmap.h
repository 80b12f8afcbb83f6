// Pictures of a text by layer and head: what was kept of it, how it is attended to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ctxzip/context.h"
#include "score/scores.h"

namespace ctxzip::eval {

// Values 0..1 of each head (layers x KV heads) for parts of a text of equal length, give or take a
// token: at most kMapParts.
struct HeatMap {
  int64_t n_head = 0;
  int64_t n_kv_head = 0;  // of a layer
  int64_t n_part = 0;
  std::vector<float> values = {};  // (head, part)
};

constexpr int64_t kMapParts = 1200;  // as wide as a screen

// The share of each part's rows that was kept.
HeatMap kept_map(const KeptMap& kept, int64_t n_kv_head);
// The share of all pairs that score lower, mean over each part's rows: at a ratio of 0.3, what was
// kept is above 0.7.
HeatMap rank_map(const Scores& scores);
// Attention weights: the largest of each part.
HeatMap weight_map(const Scores& weights);

// A PNG file, the maps one below the other: a band for each head from the first layer's at the top,
// with a gap between layers; the text runs from left to right. Dark blue: 0, yellow: 1.
std::vector<std::byte> heatmap_png(std::span<const HeatMap> maps);

// Pixels of one map in such a picture.
struct PictureSize {
  int64_t width = 0;
  int64_t height = 0;
};
PictureSize heatmap_size(const HeatMap& map);

// "#rrggbb" of a value 0..1, as in the picture.
std::string heatmap_colour(double value);

}  // namespace ctxzip::eval
