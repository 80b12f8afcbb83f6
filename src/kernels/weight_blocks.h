// Quantised weight rows as GGUF files store them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxzip {

// The layouts of the GGUF types of the same names: blocks of 32 values, first the 16-bit scale.
enum class WeightType : uint8_t {
  kQ4_1,  // scale * 4 bits + minimum
  kQ5_0,  // scale * (5 bits - 16)
  kQ5_1,  // scale * 5 bits + minimum
  kQ8_0,  // scale * signed byte
};
constexpr int kWeightTypes = 4;

constexpr int64_t kBlockValues = 32;

constexpr size_t weight_block_bytes(WeightType type) {
  constexpr size_t kBytes[kWeightTypes] = {20, 22, 24, 34};
  return kBytes[static_cast<int>(type)];
}

// out (kBlockValues). Plain arithmetic, one value at a time.
void unpack_weights(WeightType type, const std::byte* block, float* out);

}  // namespace ctxzip
