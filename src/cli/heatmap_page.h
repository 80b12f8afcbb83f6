// Pictures of what was kept and the text beside them, as one HTML file.
#pragma once

#include <span>
#include <string>

#include "cli/words.h"
#include "ctxzip/context.h"
#include "eval/heatmap.h"

namespace ctxzip::cli {

// One picture with what it shows.
struct MapPanel {
  std::string title;
  std::string note;
  eval::HeatMap map;
};

// Needs nothing from outside: the pictures are inside.
std::string heatmap_page(const std::string& file, const FileInfo& info,
                         std::span<const MapPanel> panels, std::span<const Word> words);

}  // namespace ctxzip::cli
