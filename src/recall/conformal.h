// The statistics of a calibrated index scan (VestigeKV, section 4.2): pure functions.
//
// A query is hard when its best row is archived. A hard query with best row t is found when
// index score + z x certificate >= the best kept score, so z_q = (best kept - index score) /
// certificate is the z it needs. The k-th smallest z_q of n exchangeable hard queries, k =
// ceil((n + 1) score_target), is enough for a further one with probability score_target or more.
#pragma once

#include <cstdint>
#include <span>

#include "ctxzip/recall.h"

namespace ctxzip {

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
