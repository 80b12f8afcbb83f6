#include <vector>

#include "eval/experiment.h"

namespace ctxzip::eval {

std::span<const Experiment> experiments() {
  static const std::vector<Experiment> kExperiments = {needle_experiment(), row_experiment(),
                                                       recall_experiment(), stream_experiment(),
                                                       continuation_experiment()};
  return kExperiments;
}

}  // namespace ctxzip::eval
