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
constexpr int64_t kLeastWidth = 600;

using Colour = std::array<uint8_t, 3>;

// Of even lightness steps, also for people who do not see red or green.
Colour colour_of(double share) {
  constexpr std::array<std::array<double, 3>, 4> kAnchors{
      {{0, 32, 81}, {87, 92, 109}, {165, 156, 116}, {253, 231, 55}}};
  const double at = std::clamp(share, 0.0, 1.0) * (kAnchors.size() - 1);
  const auto low = std::min(static_cast<size_t>(at), kAnchors.size() - 2);
  const double part = at - static_cast<double>(low);
  Colour colour;
  for (size_t channel = 0; channel < 3; ++channel) {
    colour[channel] = static_cast<uint8_t>(
        std::lround(kAnchors[low][channel] * (1 - part) + kAnchors[low + 1][channel] * part));
  }
  return colour;
}

int64_t part_width(const KeptMap& map) {
  return std::max<int64_t>(1, kLeastWidth / std::max<int64_t>(1, map.n_part));
}

}  // namespace

PictureSize heatmap_size(const KeptMap& map, int64_t n_kv_head) {
  return {map.n_part * part_width(map),
          map.n_head * kHeadHeight + (map.n_head / n_kv_head - 1) * kLayerGap};
}

std::vector<std::byte> heatmap_png(const KeptMap& map, int64_t n_kv_head) {
  const PictureSize size = heatmap_size(map, n_kv_head);
  const int64_t wide = part_width(map);
  std::vector<uint8_t> pixels(static_cast<size_t>(size.width * size.height * 3), 255);
  for (int64_t head = 0; head < map.n_head; ++head) {
    const int64_t top = head * kHeadHeight + head / n_kv_head * kLayerGap;
    for (int64_t x = 0; x < size.width; ++x) {
      const Colour colour = colour_of(static_cast<double>(map.at(head, x / wide)));
      for (int64_t y = top; y < top + kHeadHeight; ++y) {
        std::copy(colour.begin(), colour.end(), pixels.begin() + (y * size.width + x) * 3);
      }
    }
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

std::string heatmap_colour(double share) {
  const Colour colour = colour_of(share);
  return fmt::format("#{:02x}{:02x}{:02x}", colour[0], colour[1], colour[2]);
}

}  // namespace ctxzip::eval
