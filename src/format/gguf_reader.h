// A bounded parser of GGUF v3: keys and tensor table of a file that may be hostile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ctxzip {

// Values are GGUF's own.
enum class GgufType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// "u32"; "unknown" for a value that GGUF does not define.
std::string_view gguf_type_label(GgufType type);

struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::kU8;
  GgufType item_type = GgufType::kU8;  // of an array; else the same as `type`
  uint64_t n_items = 1;
  std::span<const std::byte> payload;  // items; of a string its characters
};

struct GgufTensor {
  std::string_view name;
  std::array<uint64_t, 4> ne = {1, 1, 1, 1};  // innermost first
  uint32_t type = 0;                          // a ggml_type
  uint64_t offset = 0;                        // into the data
};

// Views into the bytes that were parsed.
struct GgufContents {
  std::vector<GgufEntry> entries;  // no key twice
  std::vector<GgufTensor> tensors;
  size_t data_offset = 0;  // where the metadata ends, a multiple of kGgufAlignment

  // Null if there is no such key.
  const GgufEntry* find(std::string_view key) const;
};

constexpr size_t kGgufAlignment = 32;

struct GgufLimits {
  uint64_t max_keys = 1024;
  uint64_t max_tensors = 2049;
};

// Compares every length with the bytes left before it allocates or multiplies; allocates in
// proportion to the entries it found. Tensor types, dimensions and offsets are returned unchecked.
// `object` names the source in messages. Throws Error: kCorruptFile, kUnsupported (GGUF version).
GgufContents parse_gguf(std::span<const std::byte> bytes, const std::string& object,
                        const GgufLimits& limits = {});

// Throws Error{kCorruptFile}; `detail` says place, found and expected.
[[noreturn]] void fail_corrupt(const std::string& object, const std::string& detail);

}  // namespace ctxzip
