// Settings of VestigeKV, a cache of MLA layers without rotation that reads few of its rows and
// deletes none, and what it reports. docs/vestigekv.md defines the terms.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ctxzip/export.h"

namespace ctxzip {

// What is low-passed to rank rows: each closed block on its own, or (the paper's form) everything
// that is closed, anew at every close.
enum class WindowForm { kBlock, kPrefix };

// One knob, split in halves: a recall target, the share the gate may lose, and what is left to the
// scores.
struct CTXZIP_API RecallTarget {
  double recall = 0.90;
  double gate_loss() const { return (1 - recall) / 2; }
  double score_target() const { return recall / (1 - gate_loss()); }
  // The fewest hard queries that a calibration can do with: 18 at 0.90.
  int64_t min_hard() const;
};

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
  // Fetch at most so many rows for a head, which promises nothing; 0: all that fire. Not with
  // sound.
  int64_t top_per_head = 0;
  int64_t max_fetched = 16384;
  int64_t dense_below = 0;  // attend to everything while there are fewer rows

  // Closed rows lie in files made there, one a layer (its number is appended); empty: in memory.
  std::string archive_path;
};

// What voids the promise of a calibration, or is worth knowing about it; bits of a set.
enum CalibrationNote : uint32_t {
  kTooFewHard = 1,         // fewer hard queries than min_hard(): z is the largest allowed
  kClamped = 2,            // the z that is wanted lies above the largest allowed
  kAllTies = 4,            // all hard queries want the same z: nothing was measured
  kNoQueries = 8,          // nothing was observed at all
  kPartitionChanged = 16,  // rows were closed since
  kSketchCompleted = 32,   // fewer query vectors than sketch rows (voids nothing)
  kGateOpen = 64,          // no head has an entropy gate (voids nothing)
  kRowsCapped = 128,       // a head may not fetch all rows that fire (top_per_head)
  kTargetMissed = 256,     // an audit found less than the target
};
constexpr uint32_t kVoidingNotes = kTooFewHard | kClamped | kAllTies | kNoQueries |
                                   kPartitionChanged | kRowsCapped | kTargetMissed;
constexpr uint32_t kAllNotes = kVoidingNotes | kSketchCompleted | kGateOpen;
// Of the bits that are set, for people: "rows were closed since", ...
CTXZIP_API std::vector<std::string_view> note_texts(uint32_t notes);

enum class CalibrationPhase { kProvisional, kCalibrated, kStale };
CTXZIP_API std::string_view phase_name(CalibrationPhase phase);

// How far the recall target can be relied on; shown wherever recall is reported.
struct CalibrationState {
  CalibrationPhase phase = CalibrationPhase::kProvisional;
  uint32_t notes = kNoQueries;  // CalibrationNote bits
  double z = 0;
  int64_t rank = 0;     // z is the rank-th smallest of
  int64_t n_hard = 0;   // hard queries of odd steps that passed their gate
  int64_t n_steps = 0;  // observed steps used
  int64_t n_gated = 0;  // heads with an entropy gate

  bool holds() const {
    return phase == CalibrationPhase::kCalibrated && (notes & kVoidingNotes) == 0;
  }
  bool operator==(const CalibrationState&) const = default;
};

// Exact scores of whole steps against what the recall found.
struct RecallAudit {
  int64_t steps = 0;
  int64_t queries = 0;  // of all heads and layers whose best row was archived
  int64_t found = 0;    // of these: the best row was attended to
  double lower = 0;     // Clopper-Pearson limits of found / queries, 95%
  double upper = 1;
  int64_t recalibrations = 0;  // since the lower limit fell below the target
};

struct RecallLayerReport {
  int64_t layer = 0;  // its number in the model
  int64_t kept = 0;
  int64_t archived = 0;
  int64_t tail = 0;
  CalibrationState calibration;
};

// Rows and bytes are sums over layers, steps are tokens.
struct RecallReport {
  std::vector<RecallLayerReport> layers;
  double target = 0;  // 0: recall is off
  bool sound = false;
  double effective_ratio = 1;  // rows / (kept + tail), whatever recall adds
  int64_t resident_bytes = 0;  // kept rows, index and tail
  int64_t archive_bytes = 0;   // closed rows, in memory or in files
  int64_t steps = 0;
  int64_t layer_steps = 0;
  int64_t triggered = 0;   // layer steps that fetched rows
  int64_t dense = 0;       // that attended to everything, the context being short
  int64_t overflowed = 0;  // that attended to everything, too many rows having fired
  int64_t fired_rows = 0;
  int64_t fetched_rows = 0;
  int64_t bytes_read = 0;
  int64_t bytes_dense = 0;  // what reading all rows would have read
  // Lemma 3 for the last step, the worst head: no more softmax mass than this was left out, as a
  // share of what was attended to; 1 says nothing. Absent when there was no step, or rows were
  // closed since.
  std::optional<double> excluded_mass_limit;
  RecallAudit audit;
  double longest_pause_s = 0;  // between two steps: closing and calibrating
};

}  // namespace ctxzip
