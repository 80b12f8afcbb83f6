// What a zip is going to cost, for a person who waits for it.
#pragma once

#include <optional>
#include <string>

#include "ctxzip/model.h"
#include "ctxzip/zip.h"

namespace ctxzip::cli {

// From the speed of earlier zips with this model; a cautious guess before the first.
double estimated_seconds(const ZipEstimate& estimate, const Model& model, int n_threads);

// "3,120 tokens: about 150 MiB of memory beside the model, about 9.2 s"
std::string describe_estimate(const ZipEstimate& estimate, double seconds);

// A warning if the estimate is above what the system has free.
std::optional<std::string> memory_warning(const ZipEstimate& estimate);

// Keeps the speed of a finished zip, its self-check included, for the next estimate.
void learn_speed(const ZipEstimate& estimate, const ZipReport& report, const Model& model,
                 int n_threads);

}  // namespace ctxzip::cli
