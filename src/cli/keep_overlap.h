// How far two zips of one text keep the same pairs.
#pragma once

#include <string>

#include "cli/json_output.h"

namespace ctxzip::cli {

struct KeepOverlap {
  std::string other;  // its file
  int64_t pairs_kept = 0;
  int64_t other_pairs_kept = 0;
  int64_t shared = 0;    // pairs that both keep
  double by_chance = 0;  // share of this file's pairs that a random choice of as many would share

  // Of the pairs kept in this file, the share that the other keeps too.
  double share() const;
};

// Throws Error: kMismatch when the files are of different models or texts, kUnsupported when one is
// under VestigeKV, and as inspect_file does.
KeepOverlap keep_overlap(const std::string& file, const std::string& other);

std::string overlap_line(const KeepOverlap& overlap);
Json overlap_json(const KeepOverlap& overlap);

}  // namespace ctxzip::cli
