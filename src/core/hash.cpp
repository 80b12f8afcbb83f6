#include "core/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace ctxzip {

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH64(bytes.data(), bytes.size(), seed);
}

struct Hasher64::State {
  State() : xxh(XXH64_createState()) {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH64_reset(xxh, 0);
  }
  ~State() { XXH64_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  XXH64_state_t* xxh;
};

Hasher64::Hasher64() : state_(std::make_unique<State>()) {}
Hasher64::~Hasher64() = default;

void Hasher64::update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH64_update(state_->xxh, bytes.data(), bytes.size());
}

uint64_t Hasher64::digest() const { return XXH64_digest(state_->xxh); }

std::string to_hex(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace ctxzip
