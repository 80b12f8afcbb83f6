#include "eval/heatmap.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/fail.h"

#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STBI_WRITE_NO_STDIO
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <stb/stb_image_write.h>
#pragma GCC diagnostic pop

namespace ctxzip::eval {
namespace {

constexpr int64_t kHeadHeight = 6;
constexpr int64_t kLayerGap = 2;
constexpr int64_t kMapGap = 16;
constexpr int64_t kLeastWidth = 600;

using Colour = std::array<uint8_t, 3>;

// Of even lightness steps, also for people who do not see red or green.
Colour colour_of(double value) {
  constexpr std::array<std::array<double, 3>, 4> kAnchors{
      {{0, 32, 81}, {87, 92, 109}, {165, 156, 116}, {253, 231, 55}}};
  const double at = std::clamp(value, 0.0, 1.0) * (kAnchors.size() - 1);
  const auto low = std::min(static_cast<size_t>(at), kAnchors.size() - 2);
  const double part = at - static_cast<double>(low);
  Colour colour;
  for (size_t channel = 0; channel < 3; ++channel) {
    colour[channel] = static_cast<uint8_t>(
        std::lround(kAnchors[low][channel] * (1 - part) + kAnchors[low + 1][channel] * part));
  }
  return colour;
}

int64_t part_width(const HeatMap& map) {
  return std::max<int64_t>(1, kLeastWidth / std::max<int64_t>(1, map.n_part));
}

HeatMap empty_map(const Scores& scores) {
  HeatMap map{.n_head = scores.n_layer * scores.n_kv_head,
              .n_kv_head = scores.n_kv_head,
              .n_part = std::min(kMapParts, scores.n_context)};
  map.values.resize(static_cast<size_t>(map.n_head * map.n_part));
  return map;
}

// The place in a map of a pair of the scores.
size_t place_of(const Scores& scores, const HeatMap& map, int64_t pair) {
  const int64_t row = pair % scores.n_context;
  return static_cast<size_t>(pair / scores.n_context * map.n_part +
                             row * map.n_part / scores.n_context);
}

// Draws `map` into rows of `width` pixels, three bytes each; `pixels` is its first row.
void draw(const HeatMap& map, int64_t width, uint8_t* pixels) {
  const int64_t wide = part_width(map);
  for (int64_t head = 0; head < map.n_head; ++head) {
    const int64_t top = head * kHeadHeight + head / map.n_kv_head * kLayerGap;
    for (int64_t x = 0; x < map.n_part * wide; ++x) {
      const Colour colour = colour_of(
          static_cast<double>(map.values[static_cast<size_t>(head * map.n_part + x / wide)]));
      for (int64_t y = top; y < top + kHeadHeight; ++y) {
        std::copy(colour.begin(), colour.end(), pixels + (y * width + x) * 3);
      }
    }
  }
}

}  // namespace

HeatMap kept_map(const KeptMap& kept, int64_t n_kv_head) {
  return {kept.n_head, n_kv_head, kept.n_part, kept.share};
}

HeatMap rank_map(const Scores& scores) {
  HeatMap map = empty_map(scores);
  std::vector<float> sorted = scores.values;
  std::sort(sorted.begin(), sorted.end());
  std::vector<float> sizes(map.values.size());
  for (int64_t pair = 0; pair < scores.pairs(); ++pair) {
    const auto lower =
        std::lower_bound(sorted.begin(), sorted.end(), scores.values[static_cast<size_t>(pair)]);
    const size_t place = place_of(scores, map, pair);
    map.values[place] +=
        static_cast<float>(lower - sorted.begin()) / static_cast<float>(sorted.size());
    sizes[place] += 1;
  }
  for (size_t place = 0; place < sizes.size(); ++place) map.values[place] /= sizes[place];
  return map;
}

HeatMap weight_map(const Scores& weights) {
  HeatMap map = empty_map(weights);
  for (int64_t pair = 0; pair < weights.pairs(); ++pair) {
    float& value = map.values[place_of(weights, map, pair)];
    value = std::max(value, weights.values[static_cast<size_t>(pair)]);
  }
  return map;
}

PictureSize heatmap_size(const HeatMap& map) {
  return {map.n_part * part_width(map),
          map.n_head * kHeadHeight + (map.n_head / map.n_kv_head - 1) * kLayerGap};
}

std::vector<std::byte> heatmap_png(std::span<const HeatMap> maps) {
  PictureSize size;
  for (const HeatMap& map : maps) {
    const PictureSize one = heatmap_size(map);
    size.width = std::max(size.width, one.width);
    size.height += one.height + (size.height > 0 ? kMapGap : 0);
  }
  std::vector<uint8_t> pixels(static_cast<size_t>(size.width * size.height * 3), 255);
  int64_t top = 0;
  for (const HeatMap& map : maps) {
    draw(map, size.width, pixels.data() + top * size.width * 3);
    top += heatmap_size(map).height + kMapGap;
  }
  std::vector<std::byte> png;
  const auto append = [](void* to, void* data, int n) {
    auto& bytes = *static_cast<std::vector<std::byte>*>(to);
    const auto* from = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), from, from + n);
  };
  const int written = stbi_write_png_to_func(append, &png, static_cast<int>(size.width),
                                             static_cast<int>(size.height), 3, pixels.data(),
                                             static_cast<int>(size.width * 3));
  if (written == 0) fail(ErrorKind::kOutOfMemory, "no memory for the picture");
  return png;
}

std::string heatmap_colour(double value) {
  const Colour colour = colour_of(value);
  return fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2]);
}

}  // namespace ctxzip::eval
