// What the rows of one layer look like to its queries: pure functions on captured rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/query_capture.h"

namespace ctxzip::eval {

// Some hits of some trials.
struct HitCount {
  int64_t hits = 0;
  int64_t n = 0;
  double share() const { return n == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(n); }
};

// Queries of tokens `at` that are looked at, and the rows [0, n_rows) they may win.
struct QuerySet {
  const MlaShape& shape;
  const LayerCapture& layer;
  std::span<const int64_t> at;
  int64_t n_rows = 0;
};

// How often the row that scores highest is also the highest when only dimensions [begin, end) of
// queries and rows count. Of all heads; ties go to the lower row.
HitCount same_best_row(const QuerySet& set, int64_t begin, int64_t end);

// Rows of [0, n_tokens) that score highest for any query at or after them, a query seeing only the
// rows up to its own; of all heads.
HitCount winning_rows(const MlaShape& shape, const LayerCapture& layer, int64_t n_tokens);

enum class PageRadius : uint8_t { kMean, kLargest };
constexpr int64_t kPageRows = 32;

// ArkVale's digests (arXiv 2407, equations 1 and 2): a page of 32 rows is the sphere around its
// mean with the mean or largest distance as radius, and scores q.centre + |q| radius. How often the
// page of the highest row is among the n_best pages.
HitCount pages_found(const QuerySet& set, PageRadius radius, int64_t n_best);

}  // namespace ctxzip::eval
