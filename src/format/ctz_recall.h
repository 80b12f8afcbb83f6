// VestigeKV's part of a .ctz file, since version 4: settings and counts are keys; sigma, partition,
// basis, gates and observed queries are tensors after those of the rows. docs/format.md.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cache/context_rows.h"
#include "format/ctz.h"
#include "format/ctz_layout.h"
#include "format/ctz_source.h"
#include "format/key_writer.h"
#include "kernels/mla.h"
#include "model/fingerprint.h"
#include "recall/recall_state.h"

namespace ctxzip {

inline constexpr char kKeyPolicy[] = "ctxzip.policy";
inline constexpr char kPolicyVestige[] = "vestige";
inline constexpr char kKeyPolicyPrefix[] = "ctxzip.policy.";

// Ten tensors a layer must fit what a reader accepts.
constexpr int64_t kMaxRecallLayers = 200;

// CHECKs that rows and states belong together; throws Error{kUnsupported} for what a reader would
// refuse.
void check_recall(const ModelFingerprint& model, const ContextRows& rows,
                  const RecallContext& recall);
void set_recall_keys(KeyWriter& keys, const RecallContext& recall);
// Bit u % 8 of byte u / 8: closed row u is kept.
std::vector<std::byte> partition_bitmap(const RecallState& state);

// What a layer's tensors are sized by.
struct RecallSize {
  int64_t n_closed = 0;
  int64_t n_steps = 0;  // observed
};
std::vector<RecallSize> recall_sizes(const RecallContext& recall, int64_t n_head);

// Adds the tensors that sizes imply, and their bytes in that order.
void append_recall_layout(std::vector<TensorSpec>& specs, const LayerMap& layers,
                          const MlaShape& shape, const RecallOptions& options,
                          std::span<const RecallSize> sizes);
void append_recall_data(std::vector<std::span<const std::byte>>& data, const RecallState& state,
                        std::span<const std::byte> partition);

// What keys say; the states' arrays are empty. `n_rows`: prefix and context.
struct RecallKeys {
  RecallContext context;
  std::vector<RecallSize> sizes;
};
RecallKeys read_recall_keys(const Source& source, const ModelFingerprint& model,
                            const KvShape& rows, const LayerMap& layers, int64_t n_rows);
// `tensors`: those of the layout. Refuses states that do not fit the rows.
RecallContext read_recall(const Source& source, const MlaShape& shape, RecallKeys keys,
                          std::span<const std::span<const std::byte>> tensors);

}  // namespace ctxzip
