// Which stored rows a batch attends to, for every layer and KV head.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cache/context_rows.h"
#include "cache/surviving_rows.h"
#include "kernels/attention.h"

namespace ctxzip {

// Segments in the order they are attended to. Views only: the stores must outlive the table.
//
// Stores hold one kind of layer; layers of the other kind get an empty segment. A local layer may
// have rows in one segment only, and they must lie directly before the batch's own rows: that is
// how the seam knows which of them a window has left behind.
class SegmentTable {
 public:
  explicit SegmentTable(const LayerMap& layers, const KvShape& global)
      : layers_(layers), global_(global) {}

  // Of global layers.
  void add(const ZippedRows& rows);
  // Rows [begin, end) of every head.
  void add(const DenseCache& cache, int64_t begin, int64_t end);
  // The rows that compaction would keep, without copying them: prefix, then `kept`.
  void add(const DenseCache& cache, int64_t n_prefix, const KeepSet& kept);
  // All rows held, or only the prefix.
  void add(const SurvivingRows& rows);
  void add_prefix(const SurvivingRows& rows);
  // Of local layers; nothing is added for a model that has none.
  void add_window(const ZippedRows& rows);
  // Of local layers, and the states that recurrent ones start from.
  void add_window(const FrozenLayers& frozen);
  // All of these.
  void add(const ContextRows& rows);

  const LayerMap& layers() const { return layers_; }
  // Null: no token came before.
  const RecurrentStates* states() const { return states_; }
  int64_t size() const { return static_cast<int64_t>(segments_.size()); }
  const Segment& at(int64_t segment, int64_t layer, int64_t kv_head) const {
    return segments_[static_cast<size_t>(segment)]
                    [static_cast<size_t>(layer * global_.n_kv_head + kv_head)];
  }

 private:
  // make(index among the layers of the kind, kv_head)
  template <typename Make>
  void add_each(LayerKind kind, Make make);

  LayerMap layers_;
  KvShape global_;
  std::vector<std::vector<Segment>> segments_;   // (segment, layer * kv_head)
  std::deque<std::vector<uint32_t>> row_lists_;  // what indexed segments point to
  const RecurrentStates* states_ = nullptr;
};

}  // namespace ctxzip
