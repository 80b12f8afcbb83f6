#include "model/architecture.h"

namespace ctxzip {
namespace {

constexpr const Architecture* kArchitectures[] = {
    &kLlamaArchitecture,        &kQwen2Architecture,      &kQwen3Architecture,
    &kQwen3MoeArchitecture,     &kGemma3Architecture,     &kSmolLm3Architecture,
    &kDeepseek2Architecture,    &kKimiLinearArchitecture, &kKimiLinearRopeArchitecture,
    &kGraniteHybridArchitecture};

}  // namespace

const Architecture* find_architecture(const std::string& name) {
  for (const Architecture* architecture : kArchitectures) {
    if (name == architecture->name) return architecture;
  }
  return nullptr;
}

std::string architecture_names() {
  std::string names;
  for (const Architecture* architecture : kArchitectures) {
    if (!names.empty()) names += ", ";
    names += architecture->name;
  }
  return names;
}

}  // namespace ctxzip
