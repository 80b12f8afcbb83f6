// Where models and what is known of them are kept.
#pragma once

#include <filesystem>

namespace ctxzip::cli {

// $CTXZIP_CACHE, else $XDG_CACHE_HOME/ctxzip, else $HOME/.cache/ctxzip; not created. Throws
// Error{kNotFound} when none of the variables is set.
std::filesystem::path cache_folder();
std::filesystem::path models_folder();

}  // namespace ctxzip::cli
