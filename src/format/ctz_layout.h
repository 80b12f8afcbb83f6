// What reader and writer of .ctz files share: names, limits and the tensor table that a context's
// dimensions imply. docs/format.md is the specification.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/kv_shape.h"
#include "cache/layer_map.h"

namespace ctxzip {

inline constexpr char kCtzArchitecture[] = "ctxzip";
inline constexpr char kKeyArchitecture[] = "general.architecture";
inline constexpr char kKeyAlignment[] = "general.alignment";
inline constexpr char kKeyVersion[] = "ctxzip.version";
inline constexpr char kKeyRowType[] = "ctxzip.row_type";
inline constexpr char kKeyModelPrefix[] = "ctxzip.model.";
inline constexpr char kKeyModelName[] = "ctxzip.model.name";
inline constexpr char kKeyPrefixTokens[] = "ctxzip.tokens.prefix";
inline constexpr char kKeyContextTokens[] = "ctxzip.tokens.context";
inline constexpr char kKeyQuestionTokens[] = "ctxzip.tokens.question";
inline constexpr char kKeyTurnTokens[] = "ctxzip.tokens.turn";
inline constexpr char kKeyNextTurnTokens[] = "ctxzip.tokens.next_turn";
inline constexpr char kKeyTemplated[] = "ctxzip.templated";
inline constexpr char kKeyMethod[] = "ctxzip.method";
inline constexpr char kKeyAllocation[] = "ctxzip.allocation";
inline constexpr char kKeyReconAttention[] = "ctxzip.recon_attention";
inline constexpr char kKeySchedule[] = "ctxzip.schedule";
inline constexpr char kKeyChunkTokens[] = "ctxzip.chunk_tokens";
inline constexpr char kKeySeed[] = "ctxzip.seed";
inline constexpr char kKeyDeltaNll[] = "ctxzip.delta_nll";
inline constexpr char kKeyDeltaNllProbe[] = "ctxzip.delta_nll_probe";
inline constexpr char kKeyCounts[] = "ctxzip.kept.counts";
inline constexpr char kKeyTensorChecksums[] = "ctxzip.checksum.tensors";
inline constexpr char kKeyMetadataChecksum[] = "ctxzip.checksum.metadata";

constexpr size_t kMaxTextBytes = 255;
constexpr int64_t kMaxLayers = kMaxTextBytes;  // their kinds are one letter each

// ggml_type numbers; a RowType has the same number as its ggml_type.
constexpr uint32_t kTensorI8 = 24;
constexpr uint32_t kTensorI32 = 26;

struct TensorSpec {
  std::string name;
  uint32_t type = 0;
  std::array<uint64_t, 4> ne = {1, 1, 1, 1};
  uint64_t offset = 0;   // into the data
  uint64_t n_bytes = 0;  // without padding
};

// Recurrent layers hold so many values each; 0: there are none.
std::optional<std::string> state_size_wrong(const LayerMap& layers, int64_t state_size);

// Names the dimension that the format cannot hold; empty if all are fine. Within these limits no
// size of tensor_layout() overflows.
std::optional<std::string> limit_exceeded(const KvShape& shape, const LayerMap& layers,
                                          uint64_t n_positions);

// Bytes of one head's bitmap.
constexpr uint64_t bitmap_bytes(uint64_t n_context) { return (n_context + 7) / 8; }
// Bytes of a tensor with its padding.
uint64_t padded_bytes(uint64_t n_bytes);

// Rows of all heads of one layer together, prefixes included; or the state of a recurrent one.
struct LayerSize {
  uint64_t n_rows = 0;
  uint64_t k_bytes = 0;
  uint64_t v_bytes = 0;  // 0 where values lie in keys
  uint64_t n_state = 0;
};

// The type of local layers' rows beside global rows of `type`.
constexpr RowType window_row_type(RowType type) {
  return is_quantised(type) ? RowType::kF16 : type;
}

// `kept` (over the global layers), then k.N and v.N of each of the model's layers N that has rows,
// or s.N of a recurrent one; sizes (layer). `shape` is of the global layers.
std::vector<TensorSpec> tensor_layout(const KvShape& shape, const LayerMap& layers,
                                      uint64_t n_context, std::span<const LayerSize> sizes);

}  // namespace ctxzip
