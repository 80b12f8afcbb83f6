// What VestigeKV did, for people and as JSON.
#pragma once

#include <string>

#include "cli/json_output.h"
#include "ctxzip/recall.h"

namespace ctxzip::cli {

Json recall_json(const RecallReport& report);
// Lines "  label  value", without what a file that nobody asked yet cannot say.
std::string recall_lines(const RecallReport& report);

}  // namespace ctxzip::cli
