#include "cli/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <vector>

#include "core/fail.h"

namespace ctxzip::cli {
namespace {

constexpr std::array<uint32_t, 64> kRoundConstants{
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian_word(const std::byte* bytes) {
  uint32_t word = 0;
  for (int at = 0; at < 4; ++at) word = word << 8 | std::to_integer<uint32_t>(bytes[at]);
  return word;
}

}  // namespace

void Sha256::block(const std::byte* bytes) {
  std::array<uint32_t, 64> w{};
  for (size_t t = 0; t < 16; ++t) w[t] = big_endian_word(bytes + 4 * t);
  for (size_t t = 16; t < 64; ++t) {
    const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = w[t - 16] + s0 + w[t - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t t = 0; t < 64; ++t) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRoundConstants[t] + w[t];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + t2;
  }
  const std::array<uint32_t, 8> sum{a, b, c, d, e, f, g, h};
  for (size_t word = 0; word < 8; ++word) state_[word] += sum[word];
}

void Sha256::update(std::span<const std::byte> bytes) {
  size_t held = n_bytes_ % 64;
  n_bytes_ += bytes.size();
  while (!bytes.empty()) {
    if (held == 0 && bytes.size() >= 64) {
      block(bytes.data());
      bytes = bytes.subspan(64);
      continue;
    }
    const size_t n = std::min(64 - held, bytes.size());
    std::copy_n(bytes.begin(), n, pending_.begin() + static_cast<std::ptrdiff_t>(held));
    bytes = bytes.subspan(n);
    held = (held + n) % 64;
    if (held == 0) block(pending_.data());
  }
}

std::string Sha256::hex_digest() {
  const uint64_t n_bits = n_bytes_ * 8;
  const std::byte marker{0x80};
  update({&marker, 1});
  const std::byte zero{0};
  while (n_bytes_ % 64 != 56) update({&zero, 1});
  std::array<std::byte, 8> length{};
  for (size_t at = 0; at < 8; ++at) length[at] = static_cast<std::byte>(n_bits >> (56 - 8 * at));
  update(length);
  std::string hex;
  for (const uint32_t word : state_) hex += fmt::format("{:08x}", word);
  return hex;
}

std::string sha256_of_file(const std::string& path, const std::function<void(int64_t)>& on_bytes) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             &std::fclose);
  if (!file) {
    fail(errno == ENOENT ? ErrorKind::kNotFound : ErrorKind::kIo, "{}: cannot be opened: {}", path,
         std::strerror(errno));
  }
  Sha256 hash;
  std::vector<std::byte> buffer(1 << 20);
  int64_t total = 0;
  while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    hash.update({buffer.data(), n});
    total += static_cast<int64_t>(n);
    if (on_bytes) on_bytes(total);
  }
  if (std::ferror(file.get()) != 0) {
    fail(ErrorKind::kIo, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  return hash.hex_digest();
}

}  // namespace ctxzip::cli
