#include "model/fingerprint.h"

#include <fmt/format.h>

#include <type_traits>
#include <vector>

#include "core/hash.h"

namespace ctxzip {
namespace {

std::string shown(const std::string& value) { return fmt::format("'{}'", value); }
std::string shown(int64_t value) { return fmt::format("{}", value); }
std::string shown(double value) { return fmt::format("{}", value); }
std::string shown(uint64_t value) { return to_hex(value); }

}  // namespace

std::string ModelFingerprint::digest() const {
  Hasher64 hasher;
  for_each_field(*this, [&hasher](const char*, const auto& value, int) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      hasher.update_value(uint64_t{value.size()});
      hasher.update(std::as_bytes(std::span(value)));
    } else {
      hasher.update_value(value);
    }
  });
  return to_hex(hasher.digest());
}

std::optional<std::string> first_difference(const ModelFingerprint& in_file,
                                            const ModelFingerprint& in_model) {
  std::vector<std::string> model_values;
  for_each_field(
      in_model, [&](const char*, const auto& value, int) { model_values.push_back(shown(value)); });
  std::optional<std::string> difference;
  size_t n = 0;
  for_each_field(in_file, [&](const char* name, const auto& value, int) {
    const std::string& in_model_text = model_values[n++];
    const std::string in_file_text = shown(value);
    if (!difference && in_file_text != in_model_text) {
      difference =
          fmt::format("{} is {} in the file, {} in the model", name, in_file_text, in_model_text);
    }
  });
  return difference;
}

}  // namespace ctxzip
