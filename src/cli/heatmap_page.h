// The picture of what was kept and the text beside it, as one HTML file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "cli/words.h"
#include "ctxzip/context.h"

namespace ctxzip::cli {

// Needs nothing from outside: the picture is inside. `png` shows `map`.
std::string heatmap_page(const std::string& file, const FileInfo& info, const KeptMap& map,
                         std::span<const std::byte> png, std::span<const Word> words);

}  // namespace ctxzip::cli
