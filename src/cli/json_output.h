// The JSON of --json: one object on standard output; docs/cli.md lists the fields.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ctxzip/context.h"
#include "ctxzip/model.h"
#include "ctxzip/session.h"

namespace ctxzip::cli {

using Json = nlohmann::ordered_json;

// Prints one line. Bytes that are not UTF-8 become U+FFFD.
void print_json(const Json& object);

// The fields that a zip reports and a file stores.
Json report_json(const ZipReport& report);
// (layer, kv_head) as nested arrays.
Json heads_json(const HeadCounts& heads);
Json answer_json(const std::string& question, const Answer& answer);
Json model_json(const ModelInfo& info);

// Share of the evictable pairs that was kept; 1 when there were none.
double kept_ratio(const ZipReport& report);

}  // namespace ctxzip::cli
