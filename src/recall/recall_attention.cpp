#include "recall/recall_attention.h"

#include <algorithm>
#include <array>
#include <utility>

#include "attention/custom_node.h"
#include "attention/tile_batch.h"
#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr size_t kScratchAlignment = 64;

MlaShape mla_shape(const AttentionShape& shape) {
  return {.latent = shape.n_value(),
          .branch = shape.head_dim - shape.n_value(),
          .n_head = shape.group,
          .scale = shape.scale};
}

RecallOptions of_layer(RecallOptions options, int64_t number) {
  if (!options.archive_path.empty()) options.archive_path += fmt::format(".{}", number);
  return options;
}

}  // namespace

struct RecallAttention::Layer {
  RecallAttention* owner;
  RecallCache cache;
  DecodeStep step;
  Mapping batch;                  // (token, row_dim), as the cache stores rows
  Mapping queries;                // (head, row_dim)
  ggml_tensor* result = nullptr;  // of the decode graph in use
  int64_t rows_before = 0;
  int64_t observed_before = 0;

  Layer(RecallAttention& seam, int64_t capacity, int64_t max_batch, const RecallOptions& options)
      : owner(&seam),
        cache(tuned_mla_kernels(), mla_shape(seam.setup_.shape), seam.setup_.shape.row_type,
              capacity, options),
        step(cache),
        batch(static_cast<size_t>(max_batch) * cache.row_bytes()),
        queries(static_cast<size_t>(cache.shape().n_head * cache.shape().row_dim()) *
                sizeof(float)) {}
};

RecallAttention::RecallAttention(const AttentionSetup& setup, int64_t capacity, int64_t max_batch,
                                 const RecallOptions& options)
    : setup_(setup), states_(setup.layers, setup.state_size) {
  CHECK(setup.shape.value_dim > 0 && setup.n_kv_head == 1 && setup.layers.n_local() == 0);
  for (const int64_t number : setup.layers.global_layers()) {
    layers_.push_back(
        std::make_unique<Layer>(*this, capacity, max_batch, of_layer(options, number)));
  }
  const size_t n = setup_.kernels->scratch_bytes(setup_.shape);
  scratch_stride_ = (n + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  scratch_ = Mapping(scratch_stride_ * static_cast<size_t>(setup_.n_threads));
}

RecallAttention::~RecallAttention() = default;

RecallCache& RecallAttention::cache(int64_t index) {
  return layers_[static_cast<size_t>(index)]->cache;
}
const RecallCache& RecallAttention::cache(int64_t index) const {
  return layers_[static_cast<size_t>(index)]->cache;
}
DecodeStep& RecallAttention::step(int64_t index) {
  return layers_[static_cast<size_t>(index)]->step;
}
const DecodeStep& RecallAttention::step(int64_t index) const {
  return layers_[static_cast<size_t>(index)]->step;
}
const float* RecallAttention::queries(int64_t index) const {
  return reinterpret_cast<const float*>(layers_[static_cast<size_t>(index)]->queries.data());
}
std::byte* RecallAttention::scratch(int thread) const {
  return scratch_.data() + scratch_stride_ * static_cast<size_t>(thread);
}

void RecallAttention::begin(const StateStep& states) {
  states_.set_step(states);
  for (const auto& layer : layers_) {
    layer->rows_before = layer->cache.n_rows();
    layer->observed_before = layer->cache.n_observed();
  }
}

void RecallAttention::commit(int64_t n_tokens) {
  if (n_tokens == 1) return;  // the step appended it
  for (const auto& layer : layers_) layer->cache.append(layer->batch.data(), n_tokens);
}

void RecallAttention::undo() {
  for (const auto& layer : layers_) {
    layer->cache.take_back(layer->rows_before, layer->observed_before);
  }
}

ggml_tensor* RecallAttention::attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                                     const AttentionInput& in, bool output_unused) {
  CHECK(ggml_is_contiguous(in.q) && ggml_is_contiguous(in.k) && in.v == nullptr);
  Layer& self = *layers_[static_cast<size_t>(setup_.layers.index(layer))];
  const int64_t n_tokens = in.q->ne[2];
  const int64_t n_out = setup_.shape.n_value() * in.q->ne[1];
  if (n_tokens == 1) {
    ggml_tensor* result = decode_nodes(context, self, in, n_out);
    if (!output_unused) return result;
    ggml_build_forward_expand(graph, result);
    return nullptr;
  }
  ggml_tensor* stored = custom_node(context, 1, 1, 1, {in.k}, store_node, &self);
  if (output_unused) {
    ggml_build_forward_expand(graph, stored);
    return nullptr;
  }
  return custom_node(context, n_out, n_tokens, 1, {in.q, stored}, tile_node, &self);
}

template <int phase>
void RecallAttention::phase_node(ggml_tensor*, int, int, void* data) {
  static_cast<Layer*>(data)->step.run(phase);
}

ggml_tensor* RecallAttention::decode_nodes(ggml_context* context, Layer& layer,
                                           const AttentionInput& in, int64_t n_out) {
  ggml_tensor* node = custom_node(context, 1, 1, 1, {in.q, in.k}, begin_node, &layer);
  constexpr int kLast = DecodeStep::kPhases - 1;
  [&]<int... phase>(std::integer_sequence<int, phase...>) {
    ((node = custom_node(context, phase == kLast ? n_out : 1, 1, 1, {node}, phase_node<phase>,
                         &layer)),
     ...);
  }
  (std::make_integer_sequence<int, DecodeStep::kPhases>());
  layer.result = node;
  return node;
}

// The caches' part that one thread does: the token's row and a copy of its queries, which stay
// readable after the graph has given their place to others.
void RecallAttention::begin_node(ggml_tensor* dst, int thread, int, void* data) {
  if (thread != 0) return;
  Layer& layer = *static_cast<Layer*>(data);
  const auto* q = static_cast<const float*>(dst->src[0]->data);
  const auto* k = static_cast<const float*>(dst->src[1]->data);
  const AttentionShape& shape = layer.owner->setup_.shape;
  store_row(shape.row_type, k, layer.batch.data(), shape.head_dim);
  layer.cache.append_newest(layer.batch.data());
  auto* queries = reinterpret_cast<float*>(layer.queries.data());
  std::copy_n(q, ggml_nelements(dst->src[0]), queries);
  layer.step.begin(queries, static_cast<float*>(layer.result->data));
}

void RecallAttention::store_node(ggml_tensor* dst, int thread, int n_threads, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  RecallAttention& self = *layer.owner;
  if (thread == 0) self.next_tile_.store(0, std::memory_order_relaxed);
  const int64_t dim = self.setup_.shape.head_dim;
  const auto* k = static_cast<const float*>(dst->src[0]->data);
  for (int64_t token = thread; token < dst->src[0]->ne[2]; token += n_threads) {
    store_row(self.setup_.shape.row_type, k + token * dim,
              layer.batch.data() + static_cast<size_t>(token) * layer.cache.row_bytes(), dim);
  }
}

void RecallAttention::tile_node(ggml_tensor* dst, int thread, int, void* data) {
  const Layer& layer = *static_cast<const Layer*>(data);
  RecallAttention& self = *layer.owner;
  const AttentionShape& shape = self.setup_.shape;
  const ggml_tensor* q = dst->src[0];
  const TileBatch tiles(shape, *q);
  const auto rows = [](const void* data, int64_t n) {
    return Segment{.k = data, .v = data, .n_rows = n};
  };
  for (int64_t item;
       (item = self.next_tile_.fetch_add(1, std::memory_order_relaxed)) < tiles.n_tiles;) {
    const int64_t first = tiles.first(item);
    const int64_t n = tiles.size(first);
    const std::array<Segment, 3> segments = {
        rows(layer.cache.closed_rows().data, layer.cache.n_closed()),
        rows(layer.cache.tail_rows().data, layer.cache.n_tail()),
        rows(layer.batch.data(), first + n)};
    self.setup_.kernels->attend_tile(
        shape, {static_cast<const float*>(q->data) + first * tiles.q_stride, n, tiles.q_stride},
        {.segments = segments, .causal = 2, .causal_rows = first + 1},
        static_cast<float*>(dst->data) + first * tiles.out_stride, tiles.out_stride, nullptr,
        self.scratch(thread));
  }
}

}  // namespace ctxzip
