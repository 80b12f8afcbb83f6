// The statistics of a calibrated index scan (VestigeKV, section 4.2): pure functions.
//
// A query is hard when its best row is archived. A hard query with best row t is found when
// index score + z x certificate >= the best kept score, so z_q = (best kept - index score) /
// certificate is the z it needs. The k-th smallest z_q of n exchangeable hard queries, k =
// ceil((n + 1) score_target), is enough for a further one with probability score_target or more.
#pragma once

#include <cstdint>
#include <span>

namespace ctxzip {

// What voids the promise of a calibration, or is worth knowing about it; bits of a set.
enum CalibrationNote : uint32_t {
  kTooFewHard = 1,         // fewer hard queries than min_hard(): z is the largest allowed
  kClamped = 2,            // the z that is wanted lies above the largest allowed
  kAllTies = 4,            // all hard queries want the same z: nothing was measured
  kNoQueries = 8,          // nothing was observed at all
  kPartitionChanged = 16,  // rows were closed since
  kSketchCompleted = 32,   // fewer query vectors than sketch rows (voids nothing)
  kGateOpen = 64,          // no head has an entropy gate (voids nothing)
};
constexpr uint32_t kVoidingNotes =
    kTooFewHard | kClamped | kAllTies | kNoQueries | kPartitionChanged;

// One knob, split in halves: a recall target, the share the gate may lose, and what is left to the
// scores.
struct RecallTarget {
  double recall = 0.90;
  double gate_loss() const { return (1 - recall) / 2; }
  double score_target() const { return recall / (1 - gate_loss()); }
  // The fewest hard queries for which some z_q is enough: 18 at 0.90.
  int64_t min_hard() const;
};

// (best_kept - index_score) / certificate; without a certificate -inf if the index alone finds the
// row, else +inf. Never NaN for numbers.
double wanted_z(double best_kept, double index_score, double certificate);

struct ConformalZ {
  double z = 0;      // in [-z_max, z_max]
  int64_t n = 0;     // hard queries
  int64_t rank = 0;  // z is the rank-th smallest; 0: too few
  uint32_t notes = 0;
};
// Reorders `wanted`.
ConformalZ conformal_z(std::span<double> wanted, const RecallTarget& target, double z_max);

// The entropy from which a head's queries are scanned: the floor(gate_loss (n + 1))-th smallest of
// the hard queries' kept entropies (reordered), -inf (always open) when that is the 0th, or when
// more than `max_open` of all the head's queries would pass anyway.
float gate_threshold(std::span<float> hard, std::span<const float> all, const RecallTarget& target,
                     double max_open = 0.6);

}  // namespace ctxzip
