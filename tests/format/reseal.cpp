#include "reseal.h"

#include <cstdint>
#include <cstring>

#include "core/hash.h"
#include "ctxzip/error.h"
#include "format/ctz_layout.h"
#include "format/gguf_reader.h"

namespace ctxzip {
namespace {

// Bytes of a tensor; more than any file has if that overflows.
uint64_t tensor_bytes(const GgufTensor& tensor) {
  uint64_t n = tensor.type == 0 || tensor.type == kTensorI32 ? 4 : tensor.type == 1 ? 2 : 1;
  for (const uint64_t dim : tensor.ne) {
    if (__builtin_mul_overflow(n, dim, &n)) return UINT64_MAX;
  }
  return n;
}

void put(std::span<std::byte> bytes, const std::byte* place, uint64_t value) {
  std::memcpy(bytes.data() + (place - bytes.data()), &value, sizeof(value));
}

}  // namespace

void reseal(std::span<std::byte> bytes) {
  GgufContents gguf;
  try {
    gguf = parse_gguf(bytes, "reseal");
  } catch (const Error&) {
    return;
  }
  const auto data = bytes.subspan(gguf.data_offset);
  const GgufEntry* const tensors = gguf.find(kKeyTensorChecksums);
  if (tensors != nullptr && tensors->type == GgufType::kArray &&
      tensors->item_type == GgufType::kU64) {
    for (size_t at = 0; at < gguf.tensors.size() && at < tensors->n_items; ++at) {
      const uint64_t offset = gguf.tensors[at].offset;
      const uint64_t n_bytes = tensor_bytes(gguf.tensors[at]);
      if (offset > data.size() || n_bytes > data.size() - offset) continue;
      put(bytes, tensors->payload.data() + 8 * at, hash64(data.subspan(offset, n_bytes)));
    }
  }
  const GgufEntry* const metadata = gguf.find(kKeyMetadataChecksum);
  if (metadata != nullptr && metadata->type == GgufType::kU64) {
    put(bytes, metadata->payload.data(), 0);
    put(bytes, metadata->payload.data(), hash64(bytes.first(gguf.data_offset)));
  }
}

}  // namespace ctxzip
