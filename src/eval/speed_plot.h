// Decoding speed against context length as an SVG picture.
#pragma once

#include <string>

#include "eval/speed.h"

namespace ctxzip::eval {

// One line for each ratio and one for llama.cpp; axes from zero.
std::string speed_plot(const SpeedReport& report, const std::string& title);

}  // namespace ctxzip::eval
