// Which model file has which fingerprint: models.json in the cache folder. Only a help: when it is
// missing, damaged or cannot be written, models have to be given with -m.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ctxzip/model.h"

namespace ctxzip::cli {

struct KnownModel {
  std::string fingerprint;
  std::string name = {};
  std::string path = {};  // absolute
  // Speed of the last zip with this model, in operations per second and thread; 0: none yet.
  double flops_per_thread_s = 0;
};

std::vector<KnownModel> known_models();
std::optional<KnownModel> known_model(const std::string& fingerprint);
void remember_model(const ModelInfo& info);
void remember_speed(const std::string& fingerprint, double flops_per_thread_s);

}  // namespace ctxzip::cli
