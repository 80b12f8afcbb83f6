// What a zip prints when it is done.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/json_output.h"
#include "ctxzip/context.h"

namespace ctxzip::cli {

struct ZipResult {
  std::string file;
  int64_t file_bytes = 0;
  std::string model_name = {};   // general.name of the model
  std::string model_label = {};  // what a person calls it
  std::string model_path;
  bool default_model = false;
  std::string model_fingerprint = {};
  ZipReport report = {};
  std::optional<RecallReport> recall = {};
  std::vector<std::string> notices = {};
};

Json zip_json(const ZipResult& result);
std::string zip_table(const ZipResult& result);

// "5.2 MiB -> 2.0 MiB", with what is not evicted.
std::string describe_cache(const ZipReport& report);

// "lossy: -0.004 nats/token on the text, ...", or that nothing was evicted or measured;
// `reads_few`: under VestigeKV.
std::string describe_loss(const ZipReport& report, bool reads_few = false);

}  // namespace ctxzip::cli
