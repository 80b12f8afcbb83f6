// Chains of assignments hidden in a text (RULER's variable tracking, SCBench's Retr.MultiHop).
#pragma once

#include <string>
#include <vector>

#include "eval/draw.h"
#include "eval/generator.h"

namespace ctxzip::eval {

struct VariableChain {
  std::string value;               // of the first variable, five digits
  std::vector<std::string> names;  // each assigned from the one before
};

// n chains of 1 + n_hops variables; all names and values differ.
std::vector<VariableChain> draw_chains(size_t n, size_t n_hops, Draw& draw);

// The assignments at random depths, those of a chain in order.
std::vector<Placed> place_chains(const std::vector<VariableChain>& chains, Draw& draw);

std::string chain_question(const VariableChain& chain);

}  // namespace ctxzip::eval
