#include "attention/cache_attention.h"

#include <ggml.h>

#include <algorithm>
#include <array>

#include "attention/custom_node.h"
#include "attention/tile_batch.h"
#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr int64_t kMaxSegments = 8;
constexpr int64_t kColumnsPerItem = 256;
constexpr int64_t kOwnRowsPerGrowth = 4 * kRowsPerBlock;
constexpr size_t kScratchAlignment = 64;

int64_t n_blocks(int64_t n_rows) { return (n_rows + kRowsPerBlock - 1) / kRowsPerBlock; }

size_t align_up(size_t n, size_t alignment) { return (n + alignment - 1) / alignment * alignment; }

}  // namespace

struct CacheAttention::Layer {
  CacheAttention* owner;
  int64_t number;  // in the model
  int64_t index;   // among the layers of its kind
  bool local;
  int64_t block_capacity = 0;
  bool lse_only = false;
};

CacheAttention::CacheAttention(const AttentionSetup& setup, const SegmentTable& table,
                               int own_place, const ScoreSink* score, const QuerySink* queries)
    : setup_(setup),
      table_(table),
      own_place_(own_place),
      score_(score),
      queries_(queries),
      states_(setup.layers, setup.state_size) {
  CHECK(n_segments() <= kMaxSegments && own_place >= 0 && own_place < n_segments());
  const LayerMap& layers = setup.layers;
  CHECK(table.layers() == layers);
  for (int64_t layer = 0; layer < layers.n_layer(); ++layer) {
    layers_.push_back(std::make_unique<Layer>(Layer{.owner = this,
                                                    .number = layer,
                                                    .index = layers.index(layer),
                                                    .local = layers.is_local(layer)}));
  }
  scratch_stride_ = align_up(setup_.kernels->scratch_bytes(setup_.shape), kScratchAlignment);
  scratch_ = std::make_unique<std::byte[]>(scratch_stride_ * static_cast<size_t>(setup_.n_threads) +
                                           kScratchAlignment);
}

CacheAttention::~CacheAttention() = default;

void CacheAttention::set_targets(std::span<const AppendTarget> targets) {
  targets_.assign(targets.begin(), targets.end());
  states_.set_step(targets_[0].states);
  const int64_t growth = kOwnRowsPerGrowth;
  for (const AppendTarget& target : targets_) {
    const int64_t first_row = std::max(target.global.first_row, target.local.first_row);
    own_row_capacity_ = std::max(own_row_capacity_, (first_row / growth + 1) * growth);
  }
  if (n_lanes() > 1) {
    lane_queries_.resize(static_cast<size_t>(setup_.n_threads * n_lanes() * setup_.shape.group *
                                             setup_.shape.head_dim));
  }
}

std::byte* CacheAttention::scratch(int thread) const {
  const auto base = reinterpret_cast<uintptr_t>(scratch_.get());
  return scratch_.get() + (align_up(base, kScratchAlignment) - base) +
         scratch_stride_ * static_cast<size_t>(thread);
}

const OwnRows& CacheAttention::own(const Layer& layer, int64_t lane) const {
  const AppendTarget& target = targets_[static_cast<size_t>(lane)];
  return layer.local ? target.local : target.global;
}

Segment CacheAttention::segment(int64_t index, const Layer& layer, int64_t kv_head, int64_t n_own,
                                int64_t lane) const {
  if (index != own_place_) {
    return table_.at(index < own_place_ ? index : index - 1, layer.number, kv_head);
  }
  const OwnRows& rows = own(layer, lane);
  const int64_t store_layer = targets_[static_cast<size_t>(lane)].one_layer ? 0 : layer.index;
  return rows.cache->segment(store_layer, kv_head, 0, rows.first_row + n_own);
}

int64_t CacheAttention::hidden_rows(int64_t index, const Layer& layer, int64_t kv_head,
                                    int64_t lane) const {
  const int64_t own_hidden = own(layer, lane).first_row - setup_.layers.window_rows();
  if (index == own_place_) return own_hidden;
  return own_hidden + segment(index, layer, kv_head, 0, lane).n_rows;
}

int64_t CacheAttention::segment_blocks(int64_t index, const Layer& layer, int64_t kv_head) const {
  int64_t n_rows = segment(index, layer, kv_head, 1).n_rows;
  for (int64_t lane = 1; lane < n_lanes() && index == own_place_; ++lane) {
    n_rows = std::max(n_rows, own(layer, lane).first_row + 1);
  }
  return n_blocks(n_rows);
}

bool CacheAttention::is_shared(int64_t index, const Layer& layer) const {
  // What a window shows differs from lane to lane.
  return n_lanes() > 1 && index != own_place_ && !layer.local &&
         n_lanes() * setup_.shape.group <= kMaxGroup;
}

const float* CacheAttention::lane_queries(const ggml_tensor* q, int64_t kv_head, int thread) {
  const int64_t n = setup_.shape.group * setup_.shape.head_dim;
  const float* first = static_cast<const float*>(q->data) + kv_head * n;
  if (n_lanes() == 1) return first;
  float* packed = lane_queries_.data() + thread * n_lanes() * n;
  for (int64_t lane = 0; lane < n_lanes(); ++lane) {
    std::copy_n(first + lane * q->ne[0] * q->ne[1], n, packed + lane * n);
  }
  return packed;
}

Segment CacheAttention::scored_columns(const Layer& layer, int64_t kv_head,
                                       int64_t n_tokens) const {
  if (score_->columns != own_place_) return segment(score_->columns, layer, kv_head, n_tokens);
  const OwnRows& rows = own(layer);
  const int64_t end = rows.first_row + n_tokens;
  return rows.cache->segment(targets_[0].one_layer ? 0 : layer.index, kv_head,
                             std::min(score_->first_column, end), end);
}

int64_t CacheAttention::first_token(const Layer& layer, int64_t first_query) const {
  return std::max<int64_t>(0, first_query - own(layer).first_row);
}

ggml_tensor* CacheAttention::attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                                    const AttentionInput& in, bool output_unused) {
  ggml_tensor* q = in.q;
  const int64_t n_tokens = q->ne[2];
  const int64_t n_out = setup_.shape.n_value() * q->ne[1];
  CHECK(ggml_is_contiguous(q) && ggml_is_contiguous(in.k));
  CHECK(in.v == nullptr ? setup_.shape.value_dim > 0 : ggml_is_contiguous(in.v));
  Layer& self = *layers_[static_cast<size_t>(layer)];
  ggml_tensor* appended = in.v == nullptr
                              ? custom_node(context, 1, 1, 1, {in.k}, append_node, &self)
                              : custom_node(context, 1, 1, 1, {in.k, in.v}, append_node, &self);
  const bool scored = score_ != nullptr && !self.local;
  const bool last = output_unused || (score_ != nullptr && score_->ends_pass &&
                                      layer == setup_.layers.global_layers().back());
  if (queries_ != nullptr && !self.local) {
    CHECK(ggml_is_contiguous(in.q_unrotated));
    ggml_build_forward_expand(
        graph, custom_node(context, 1, 1, 1, {in.q_unrotated, appended}, moments_node, &self));
  }
  self.lse_only = last;
  if (last && !scored) {
    ggml_build_forward_expand(graph, appended);
    return nullptr;
  }
  CHECK(n_lanes() == 1 || (n_tokens == n_lanes() && !scored && !last));
  if (n_tokens == n_lanes() && !scored) {
    self.block_capacity = n_blocks(own_row_capacity_);
    int64_t most = 0;
    for (int64_t kv_head = 0; kv_head < setup_.n_kv_head; ++kv_head) {
      int64_t n = 0;
      for (int64_t past = 0; past < table_.size(); ++past)
        n += n_blocks(table_.at(past, layer, kv_head).n_rows);
      most = std::max(most, n);
    }
    self.block_capacity += most;
    const int64_t partial = n_lanes() * setup_.shape.group * (setup_.shape.n_value() + 2);
    ggml_tensor* partials = custom_node(context, partial, self.block_capacity, setup_.n_kv_head,
                                        {q, appended}, block_node, &self);
    return custom_node(context, n_out, n_tokens, 1, {partials}, merge_node, &self);
  }
  // Without a softmax nothing is subtracted from the scores.
  lse_.assign(static_cast<size_t>(n_tokens * setup_.n_kv_head * setup_.shape.group), 0);
  ggml_tensor* attended = custom_node(context, last ? 1 : n_out, last ? 1 : n_tokens, 1,
                                      {q, appended}, tile_node, &self);
  if (scored) build_score(context, graph, self, in, attended);
  return last ? nullptr : attended;
}

void CacheAttention::build_score(ggml_context* context, ggml_cgraph* graph, Layer& layer,
                                 const AttentionInput& in, ggml_tensor* attended) {
  ggml_tensor* score = nullptr;
  if (score_->column_logs == nullptr) {
    score = custom_node(context, 1, 1, 1, {in.q, attended}, score_node, &layer);
  } else {
    CHECK(score_->columns != own_place_);
    weighted_stride_ =
        static_cast<size_t>(in.q->ne[2] + scored_columns(layer, 0, in.q->ne[2]).n_rows);
    weighted_.resize(weighted_stride_ * static_cast<size_t>(setup_.n_threads));
    ggml_tensor* squares = ggml_sum_rows(context, ggml_sqr(context, in.hidden));
    score = custom_node(context, 1, 1, 1, {in.q, attended, squares}, score_node, &layer);
  }
  ggml_build_forward_expand(graph, score);
}

void CacheAttention::append_node(ggml_tensor* dst, int thread, int n_threads, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  CacheAttention& self = *layer.owner;
  if (thread == 0) {
    self.next_attend_.store(0, std::memory_order_relaxed);
    self.next_score_.store(0, std::memory_order_relaxed);
  }
  const int64_t dim = self.setup_.shape.head_dim;
  const int64_t n_kv_head = self.setup_.n_kv_head;
  const RowType type = self.setup_.shape.row_type;
  const size_t row_size = row_bytes(type, dim);
  const auto* k = static_cast<const float*>(dst->src[0]->data);
  const auto* v = dst->src[1] == nullptr ? nullptr : static_cast<const float*>(dst->src[1]->data);
  for (int64_t token = thread; token < dst->src[0]->ne[2]; token += n_threads) {
    const int64_t lane = self.n_lanes() > 1 ? token : 0;
    const OwnRows& own = self.own(layer, lane);
    const int64_t store_layer =
        self.targets_[static_cast<size_t>(lane)].one_layer ? 0 : layer.index;
    const int64_t row_number = own.first_row + (self.n_lanes() > 1 ? 0 : token);
    const size_t offset = static_cast<size_t>(row_number) * row_size;
    for (int64_t kv_head = 0; kv_head < n_kv_head; ++kv_head) {
      const int64_t row = (token * n_kv_head + kv_head) * dim;
      store_row(type, k + row, own.cache->k_rows(store_layer, kv_head) + offset, dim);
      if (v == nullptr) continue;
      store_row(type, v + row, own.cache->v_rows(store_layer, kv_head) + offset, dim);
    }
  }
}

void CacheAttention::tile_node(ggml_tensor* dst, int thread, int, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  CacheAttention& self = *layer.owner;
  const AttentionShape& shape = self.setup_.shape;
  const ggml_tensor* q = dst->src[0];
  const TileBatch tiles(shape, *q);
  const int64_t n_items = tiles.n_tiles * self.setup_.n_kv_head;
  const auto n_segments = static_cast<size_t>(self.n_segments());
  const bool with_lse = self.score_ != nullptr && !layer.local &&
                        self.score_->statistic != ColumnStatistic::kMaxLogit;
  for (int64_t item;
       (item = self.next_attend_.fetch_add(1, std::memory_order_relaxed)) < n_items;) {
    const int64_t first = tiles.first(item / self.setup_.n_kv_head);
    const int64_t kv_head = item % self.setup_.n_kv_head;
    const int64_t n = tiles.size(first);
    std::array<Segment, kMaxSegments> segments;
    std::array<int64_t, kMaxSegments> hidden;
    for (int64_t index = 0; index < self.n_segments(); ++index) {
      segments[static_cast<size_t>(index)] = self.segment(index, layer, kv_head, first + n);
      if (layer.local) {
        hidden[static_cast<size_t>(index)] = self.hidden_rows(index, layer, kv_head) + first;
      }
    }
    const TileSegments over = {
        .segments = {segments.data(), n_segments},
        .causal = self.own_place_,
        .causal_rows = self.own(layer).first_row + first + 1,
        .n_lse_segments = with_lse ? self.score_->n_segments : 0,
        .hidden = {hidden.data(), layer.local ? n_segments : 0},
    };
    const int64_t head = kv_head * shape.group;
    const Queries queries = {
        static_cast<const float*>(q->data) + first * tiles.q_stride + head * shape.head_dim, n,
        tiles.q_stride};
    float* out = layer.lse_only ? nullptr
                                : static_cast<float*>(dst->data) + first * tiles.out_stride +
                                      head * shape.n_value();
    float* lse =
        with_lse ? self.lse_.data() + (kv_head * tiles.n_tokens + first) * shape.group : nullptr;
    self.setup_.kernels->attend_tile(shape, queries, over, out, tiles.out_stride, lse,
                                     self.scratch(thread));
  }
}

void CacheAttention::block_node(ggml_tensor* dst, int thread, int, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  CacheAttention& self = *layer.owner;
  int64_t next = self.next_attend_.fetch_add(1, std::memory_order_relaxed);
  int64_t item = 0;
  for (int64_t kv_head = 0; kv_head < self.setup_.n_kv_head; ++kv_head) {
    float* partials = static_cast<float*>(dst->data) + kv_head * layer.block_capacity * dst->ne[0];
    for (int64_t index = 0; index < self.n_segments(); ++index) {
      const int64_t n_lanes = self.is_shared(index, layer) ? 1 : self.n_lanes();
      const int64_t n_blocks = self.segment_blocks(index, layer, kv_head);
      for (int64_t block = 0; block < n_blocks; ++block, partials += dst->ne[0]) {
        for (int64_t lane = 0; lane < n_lanes; ++lane) {
          if (item++ != next) continue;
          self.attend_rows(layer, dst->src[0], {index, kv_head, block, lane}, partials, thread);
          next = self.next_attend_.fetch_add(1, std::memory_order_relaxed);
        }
      }
    }
  }
}

void CacheAttention::attend_rows(const Layer& layer, const ggml_tensor* q, const BlockItem& item,
                                 float* partials, int thread) {
  AttentionShape shape = setup_.shape;
  const float* queries = lane_queries(q, item.kv_head, thread);
  if (is_shared(item.segment, layer)) {
    shape.group *= n_lanes();
  } else {
    queries += item.lane * shape.group * shape.head_dim;
    partials += item.lane * shape.group * (shape.n_value() + 2);
  }
  const Segment rows = segment(item.segment, layer, item.kv_head, 1, item.lane);
  const int64_t first_seen =
      layer.local ? std::max<int64_t>(0, hidden_rows(item.segment, layer, item.kv_head, item.lane))
                  : 0;
  // A lane may have fewer blocks than another, and a block may lie before the window.
  const int64_t begin = std::min(item.block * kRowsPerBlock, rows.n_rows);
  const int64_t end = std::min(rows.n_rows, begin + kRowsPerBlock);
  setup_.kernels->attend_block(shape, queries, rows, std::clamp(first_seen, begin, end), end,
                               partials);
}

void CacheAttention::merge_node(ggml_tensor* dst, int thread, int n_threads, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  const CacheAttention& self = *layer.owner;
  const AttentionShape& shape = self.setup_.shape;
  const ggml_tensor* partials = dst->src[0];
  AttentionShape one_head = shape;
  one_head.group = 1;
  const int64_t n_heads = self.setup_.n_kv_head * shape.group;
  for (int64_t item = thread; item < n_heads * self.n_lanes(); item += n_threads) {
    const int64_t lane = item / n_heads;
    const int64_t kv_head = item % n_heads / shape.group;
    const int64_t head = lane * shape.group + item % shape.group;  // of a partial
    int64_t n = 0;
    for (int64_t index = 0; index < self.n_segments(); ++index) {
      n += self.segment_blocks(index, layer, kv_head);
    }
    const float* from = static_cast<const float*>(partials->data) +
                        kv_head * layer.block_capacity * partials->ne[0] +
                        head * (shape.n_value() + 2);
    float* out =
        static_cast<float*>(dst->data) + lane * dst->ne[0] + item % n_heads * shape.n_value();
    self.setup_.kernels->merge_blocks(one_head, from, partials->ne[0], n, out);
  }
}

void CacheAttention::score_node(ggml_tensor* dst, int thread, int, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  CacheAttention& self = *layer.owner;
  const AttentionShape& shape = self.setup_.shape;
  const ScoreSink& sink = *self.score_;
  const ggml_tensor* q = dst->src[0];
  const int64_t n_tokens = q->ne[2];
  const int64_t stride = q->ne[0] * q->ne[1];
  const bool own = sink.columns == self.own_place_;
  const int64_t n_columns = self.scored_columns(layer, 0, n_tokens).n_rows;
  const int64_t per_head = (n_columns + kColumnsPerItem - 1) / kColumnsPerItem;
  const int64_t n_items = per_head * self.setup_.n_kv_head;
  for (int64_t item; (item = self.next_score_.fetch_add(1, std::memory_order_relaxed)) < n_items;) {
    const int64_t kv_head = item / per_head;
    const int64_t begin = item % per_head * kColumnsPerItem;
    const int64_t head = layer.index * self.setup_.n_kv_head + kv_head;
    const ColumnItem columns = {
        .kernels = self.setup_.kernels,
        .shape = shape,
        .queries = {static_cast<const float*>(q->data) + kv_head * shape.group * shape.head_dim,
                    n_tokens, stride},
        .lse = self.lse_.data() + kv_head * n_tokens * shape.group,
        .columns = self.scored_columns(layer, kv_head, n_tokens),
        .begin = begin,
        .end = std::min(n_columns, begin + kColumnsPerItem),
        .first_seen = own ? self.own(layer).first_row - sink.first_column : n_columns,
        .first_token = self.first_token(layer, sink.first_query),
        .values = sink.values + head * sink.head_stride,
        .scratch = self.scratch(thread)};
    if (sink.column_logs == nullptr) {
      reduce_columns(sink.statistic, columns);
      continue;
    }
    float* rows = self.weighted_.data() + self.weighted_stride_ * static_cast<size_t>(thread);
    reduce_weighted_columns(
        columns, {.hidden_squares = static_cast<const float*>(dst->src[2]->data),
                  .column_logs = sink.column_logs + head * shape.group * sink.head_stride,
                  .log_stride = sink.head_stride,
                  .rows = rows,
                  .best = rows + n_tokens});
  }
}

void CacheAttention::moments_node(ggml_tensor* dst, int thread, int n_threads, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  const CacheAttention& self = *layer.owner;
  const QuerySink& sink = *self.queries_;
  const int64_t dim = self.setup_.shape.head_dim;
  const ggml_tensor* q = dst->src[0];
  const int64_t n_head = q->ne[1];
  const int64_t first = std::min(q->ne[2], self.first_token(layer, sink.first_query));
  if (first == q->ne[2]) return;
  for (int64_t head = thread; head < n_head; head += n_threads) {
    const Queries queries = {static_cast<const float*>(q->data) + (first * n_head + head) * dim,
                             q->ne[2] - first, n_head * dim};
    const int64_t place = layer.index * n_head + head;
    add_moments(queries, dim, sink.sums + place * dim, sink.products + place * dim * dim);
  }
}

}  // namespace ctxzip
