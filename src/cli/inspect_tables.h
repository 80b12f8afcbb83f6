// What `ctxzip inspect` prints for people.
#pragma once

#include <string>

#include "ctxzip/context.h"

namespace ctxzip::cli {

std::string summary_table(const std::string& file, const FileInfo& info);
// A line per layer: its share of kept rows, and its heads with the least and the most.
std::string layers_table(const FileInfo& info);
// Percent of the context's rows in each head, a line per layer.
std::string heads_table(const FileInfo& info);

}  // namespace ctxzip::cli
