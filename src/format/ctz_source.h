// A .ctz file being read, with typed access to its keys.
#pragma once

#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/fail.h"
#include "format/ctz_layout.h"
#include "format/gguf_reader.h"
#include "format/plain_text.h"

namespace ctxzip {

template <typename T>
inline constexpr GgufType kTypeOf = GgufType::kArray;
template <>
inline constexpr GgufType kTypeOf<bool> = GgufType::kBool;
template <>
inline constexpr GgufType kTypeOf<int32_t> = GgufType::kI32;
template <>
inline constexpr GgufType kTypeOf<uint32_t> = GgufType::kU32;
template <>
inline constexpr GgufType kTypeOf<int64_t> = GgufType::kI64;
template <>
inline constexpr GgufType kTypeOf<uint64_t> = GgufType::kU64;
template <>
inline constexpr GgufType kTypeOf<double> = GgufType::kF64;
template <>
inline constexpr GgufType kTypeOf<std::string> = GgufType::kString;

// All refusals name `object`.
struct Source {
  std::span<const std::byte> bytes;
  std::string object;
  GgufContents gguf;

  template <typename... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    fail_corrupt(object, fmt::format(format, std::forward<Args>(args)...));
  }

  const GgufEntry& require(const char* key, GgufType type, GgufType item_type) const {
    const GgufEntry* const entry = gguf.find(key);
    if (entry == nullptr) corrupt("the key {} is missing", key);
    if (entry->type != type || entry->item_type != item_type) {
      corrupt("the key {} has type {} of {}, expected {} of {}", key, gguf_type_label(entry->type),
              gguf_type_label(entry->item_type), gguf_type_label(type), gguf_type_label(item_type));
    }
    return *entry;
  }

  template <typename T>
  T get(const char* key) const {
    const GgufEntry& entry = require(key, kTypeOf<T>, kTypeOf<T>);
    if constexpr (std::is_same_v<T, std::string>) {
      const std::string_view text(reinterpret_cast<const char*>(entry.payload.data()),
                                  entry.payload.size());
      if (text.size() > kMaxTextBytes || !is_plain_text(text)) {
        corrupt("the key {} is not plain text of at most {} bytes", key, kMaxTextBytes);
      }
      return std::string(text);
    } else if constexpr (std::is_same_v<T, bool>) {
      const auto value = static_cast<uint8_t>(entry.payload[0]);
      if (value > 1) corrupt("the key {} is {}, expected 0 or 1", key, value);
      return value == 1;
    } else {
      T value{};
      std::memcpy(&value, entry.payload.data(), sizeof(T));
      if constexpr (std::is_same_v<T, double>) {
        if (!std::isfinite(value))
          corrupt("the key {} is {}, expected a finite number", key, value);
      }
      return value;
    }
  }

  template <typename T>
  std::optional<T> get_optional(const char* key) const {
    if (gguf.find(key) == nullptr) return std::nullopt;
    return get<T>(key);
  }

  template <typename T>
  std::vector<T> get_array(const char* key) const {
    const GgufEntry& entry = require(key, GgufType::kArray, kTypeOf<T>);
    std::vector<T> values(static_cast<size_t>(entry.n_items));
    if (!values.empty()) std::memcpy(values.data(), entry.payload.data(), entry.payload.size());
    return values;
  }
};

}  // namespace ctxzip
