// Settings of a VestigeKV cache.
#pragma once

#include <cstdint>
#include <string>

#include "recall/conformal.h"

namespace ctxzip {

// What is low-passed to rank rows: each closed block on its own, or (the paper's form) everything
// that is closed, anew at every close.
enum class WindowForm { kBlock, kPrefix };

struct RecallOptions {
  int64_t block_rows = 4096;
  double bins_per_4096 = 16;  // slow bins, in proportion to the block
  double keep_ratio = 1.0 / 32;
  int64_t n_sinks = 4;
  int64_t n_recent = 0;  // closed rows that are kept for being the newest
  WindowForm window = WindowForm::kBlock;

  bool recall = true;       // false: kept rows and the tail only
  bool sound = false;       // scan with Lemma 2's limit instead of a calibrated one
  int64_t sketch_rank = 0;  // 0: an eighth of the latent, rounded up to a multiple of 8
  RecallTarget target;
  double z_max = 8;
  int64_t min_steps = 8;  // observed before a calibration
  int64_t max_steps = 64;
  int64_t top_per_head = 0;  // fetch at most so many rows for a head; 0: all that fire
  int64_t max_fetched = 16384;
  int64_t dense_below = 0;  // attend to everything while there are fewer rows

  std::string archive_path;  // closed rows lie in a file made there; empty: in memory
};

constexpr int64_t kMaxRecallHeads = 256;
// close_now() leaves shorter tails open.
constexpr int64_t kMinClosedRows = 64;

}  // namespace ctxzip
