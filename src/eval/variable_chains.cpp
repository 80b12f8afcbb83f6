#include "eval/variable_chains.h"

#include <fmt/format.h>

#include "eval/word_list.h"

namespace ctxzip::eval {
namespace {

std::string variable_name(Draw& draw) {
  std::string name;
  for (int letter = 0; letter < 5; ++letter) name += static_cast<char>('A' + draw.below(26));
  return name;
}

std::string five_digits(Draw& draw) { return std::to_string(draw.between(10000, 99999)); }

}  // namespace

std::vector<VariableChain> draw_chains(size_t n, size_t n_hops, Draw& draw) {
  const std::vector<std::string> values = distinct(n, draw, five_digits);
  const std::vector<std::string> names = distinct(n * (1 + n_hops), draw, variable_name);
  std::vector<VariableChain> chains;
  auto next = names.begin();
  for (const std::string& value : values) {
    const auto end = next + static_cast<std::ptrdiff_t>(1 + n_hops);
    chains.push_back({value, {next, end}});
    next = end;
  }
  return chains;
}

std::vector<Placed> place_chains(const std::vector<VariableChain>& chains, Draw& draw) {
  std::vector<Placed> placed;
  for (const VariableChain& chain : chains) {
    const std::vector<double> depths = spread_depths(chain.names.size(), draw);
    for (size_t at = 0; at < chain.names.size(); ++at) {
      const std::string source = at == 0 ? chain.value : "VAR " + chain.names[at - 1];
      placed.push_back({depths[at], fmt::format("VAR {} = {}.", chain.names[at], source)});
    }
  }
  return placed;
}

std::string chain_question(const VariableChain& chain) {
  return fmt::format(
      "Some variables of the text are assigned the value {}, directly or through other variables. "
      "Which {} variables are they?",
      chain.value, chain.names.size());
}

}  // namespace ctxzip::eval
