// SHA-256 (FIPS 180-4), for files that were downloaded.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace ctxzip::cli {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  // 64 hex digits; the object is spent.
  std::string hex_digest();

 private:
  void block(const std::byte* bytes);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  uint64_t n_bytes_ = 0;
};

// Of a whole file; `on_bytes` gets the number of bytes hashed so far. Throws Error: kNotFound, kIo.
std::string sha256_of_file(const std::string& path, const std::function<void(int64_t)>& on_bytes);

}  // namespace ctxzip::cli
