// xxHash64, the checksum of every ctxzip file and fingerprint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ctxzip {

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);

// The same over pieces.
class Hasher64 {
 public:
  Hasher64();
  ~Hasher64();
  void update(std::span<const std::byte> bytes);
  template <typename T>
  void update_value(const T& value) {
    update(std::as_bytes(std::span<const T, 1>(&value, 1)));
  }
  uint64_t digest() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string to_hex(uint64_t value);  // 16 digits

}  // namespace ctxzip
