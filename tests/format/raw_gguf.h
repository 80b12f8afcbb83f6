// A GGUF file taken apart, so that a test can break one thing and put it together again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ctxzip {

struct RawKey {
  std::string name;
  uint32_t type = 0;
  std::vector<std::byte> payload;  // all that follows the type
};

struct RawTensor {
  std::string name;
  std::vector<uint64_t> ne;
  uint32_t type = 0;
  uint64_t offset = 0;
  std::optional<uint32_t> n_dims;  // instead of ne.size()
};

struct RawGguf {
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> n_tensors;  // instead of the true counts
  std::optional<uint64_t> n_keys;
  std::vector<RawKey> keys;
  std::vector<RawTensor> tensors;
  std::vector<std::byte> data;

  explicit RawGguf(std::span<const std::byte> bytes);
  // With right checksums, as far as the content allows.
  std::vector<std::byte> build() const;

  RawKey& key(const std::string& name);
  void erase(const std::string& name);
  // Replaces the value of a scalar key, or adds one.
  template <typename T>
  void set(const std::string& name, uint32_t type, T value) {
    RawKey& changed = find_or_add(name);
    changed.type = type;
    changed.payload.resize(sizeof(T));
    std::memcpy(changed.payload.data(), &value, sizeof(T));
  }
  void set_string(const std::string& name, const std::string& value);
  // Element `at` of an array.
  template <typename T>
  void set_item(const std::string& name, size_t at, T value) {
    std::memcpy(key(name).payload.data() + 12 + at * sizeof(T), &value, sizeof(T));
  }
  void set_array_length(const std::string& name, uint64_t n);

 private:
  RawKey& find_or_add(const std::string& name);
};

}  // namespace ctxzip
