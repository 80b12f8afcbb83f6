// A folder that a command fills with files.
#pragma once

#include <string>
#include <vector>

#include "eval/report_page.h"

namespace ctxzip::cli {

// Makes the folder if it is missing. Throws Error{kIo} if it is a file or cannot be made.
void make_folder(const std::string& path);

// Each file replaces an older one of its name. Throws Error{kIo}.
void write_files(const std::string& folder, const std::vector<eval::ReportFile>& files);

// A line for each file.
std::string list_files(const std::string& folder, const std::vector<eval::ReportFile>& files);

}  // namespace ctxzip::cli
