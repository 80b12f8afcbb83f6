// Which closed rows are kept: the rest is the archive. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ctxzip {

struct KeepRule {
  double ratio = 1.0 / 32;  // of the closed rows
  int64_t n_sinks = 4;      // the first rows, kept besides
  int64_t n_recent = 0;     // the last closed rows, kept besides
};

// max(1, round(ratio x n_closed)), 0 of none.
int64_t rows_to_keep(int64_t n_closed, double ratio);

// Kept rows, ascending: the sinks, the last n_recent, and of the others the rows_to_keep() with the
// largest sigma (all of them if there are fewer); ties go to the lower row. sigma (closed row)
// holds no NaN.
std::vector<uint32_t> select_rows(std::span<const float> sigma, const KeepRule& rule);

}  // namespace ctxzip
