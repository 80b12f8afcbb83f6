#include "engine/graph_runner.h"

#include <ggml-cpu.h>

#include <algorithm>
#include <exception>
#include <numeric>

#include "core/fail.h"

namespace ctxzip {
namespace {

std::mutex& compute_lock() {
  static std::mutex lock;
  return lock;
}

// ggml asks after every node, on the calling thread, whether to stop.
struct RunWatch {
  const RunControl& control;
  int n_nodes = 0;
  int n_done = 0;
  std::exception_ptr error = nullptr;

  static bool stop(void* data) {
    auto& watch = *static_cast<RunWatch*>(data);
    ++watch.n_done;
    if (watch.control.on_fraction && watch.n_done % 64 == 0) {
      try {
        watch.control.on_fraction(std::min(1.0, static_cast<double>(watch.n_done) / watch.n_nodes));
      } catch (...) {
        watch.error = std::current_exception();
        return true;
      }
    }
    return watch.control.cancel != nullptr && watch.control.cancel->cancelled();
  }
};

size_t graph_nodes(const Hyperparameters& hp) {
  return static_cast<size_t>(hp.n_layer * (96 + 3 * hp.experts.n_used) + 64);
}

}  // namespace

struct GraphRunner::Prepared {
  ggml_context_ptr context;
  ggml_cgraph* graph = nullptr;
  GraphInputs inputs;
  ggml_tensor* logits = nullptr;
  // What it was built for.
  size_t n_tokens = 0;
  size_t n_outputs = 0;
  uint64_t seam = 0;
  int64_t key = 0;
};

GraphRunner::GraphRunner(const detail::ModelState& model)
    : model_(model), backend_(ggml_backend_cpu_init()) {
  if (!backend_) fail(ErrorKind::kOutOfMemory, "the CPU backend could not be started");
  ggml_backend_cpu_set_n_threads(backend_.get(), model.options.n_threads);
  allocator_.reset(ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend_.get())));
}

GraphRunner::~GraphRunner() = default;

void GraphRunner::prepare(const Batch& batch, AttentionSeam& seam, int64_t graph_key) {
  if (prepared_ && prepared_->n_tokens == batch.tokens.size() &&
      prepared_->n_outputs == batch.output_rows.size() && prepared_->seam == seam.serial() &&
      prepared_->key == graph_key) {
    return;
  }
  prepared_.reset();
  auto next = std::make_unique<Prepared>();
  const size_t n_nodes = graph_nodes(model_.hp);
  next->context.reset(ggml_init(
      {.mem_size = n_nodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(n_nodes, false),
       .mem_buffer = nullptr,
       .no_alloc = true}));
  if (!next->context) fail(ErrorKind::kOutOfMemory, "no memory for a graph of {} nodes", n_nodes);
  ggml_context* context = next->context.get();
  next->graph = ggml_new_graph_custom(context, n_nodes, false);
  const auto input = [&](size_t n) {
    ggml_tensor* tensor = ggml_new_tensor_1d(context, GGML_TYPE_I32, static_cast<int64_t>(n));
    ggml_set_input(tensor);
    return tensor;
  };
  next->inputs.tokens = input(batch.tokens.size());
  next->inputs.positions = input(batch.tokens.size());
  if (!batch.output_rows.empty()) next->inputs.output_rows = input(batch.output_rows.size());
  next->logits = model_.architecture.build({model_.hp, model_.weights, context, next->graph},
                                           next->inputs, seam);
  if (next->logits != nullptr) ggml_set_output(next->logits);
  if (!ggml_gallocr_alloc_graph(allocator_.get(), next->graph)) {
    fail(ErrorKind::kOutOfMemory, "no memory for the activations of {} tokens",
         batch.tokens.size());
  }
  next->n_tokens = batch.tokens.size();
  next->n_outputs = batch.output_rows.size();
  next->seam = seam.serial();
  next->key = graph_key;
  prepared_ = std::move(next);
}

std::span<const float> GraphRunner::run(const Batch& batch, AttentionSeam& seam, int64_t graph_key,
                                        const RunControl& control) {
  CHECK(!batch.tokens.empty());
  for (const Token token : batch.tokens) {
    if (token < 0 || token >= model_.hp.n_vocab) {
      fail(ErrorKind::kInvalidArgument, "token id {} is outside the vocabulary of {}", token,
           model_.hp.n_vocab);
    }
  }
  const std::lock_guard lock(compute_lock());
  prepare(batch, seam, graph_key);
  std::vector<int32_t> positions(batch.positions.begin(), batch.positions.end());
  if (positions.empty()) {
    positions.resize(batch.tokens.size());
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(batch.first_position));
  }
  CHECK(positions.size() == batch.tokens.size());
  ggml_backend_tensor_set(prepared_->inputs.tokens, batch.tokens.data(), 0,
                          batch.tokens.size_bytes());
  // A graph without rotation has no use for positions: then they have no memory.
  if (prepared_->inputs.positions->buffer != nullptr) {
    ggml_backend_tensor_set(prepared_->inputs.positions, positions.data(), 0,
                            positions.size() * sizeof(int32_t));
  }
  if (prepared_->inputs.output_rows != nullptr) {
    ggml_backend_tensor_set(prepared_->inputs.output_rows, batch.output_rows.data(), 0,
                            batch.output_rows.size_bytes());
  }
  RunWatch watch{.control = control, .n_nodes = ggml_graph_n_nodes(prepared_->graph)};
  ggml_backend_cpu_set_abort_callback(backend_.get(), RunWatch::stop, &watch);
  const ggml_status status = ggml_backend_graph_compute(backend_.get(), prepared_->graph);
  ggml_backend_cpu_set_abort_callback(backend_.get(), nullptr, nullptr);
  if (watch.error) std::rethrow_exception(watch.error);
  if (status == GGML_STATUS_ABORTED) fail(ErrorKind::kCancelled, "cancelled");
  if (status != GGML_STATUS_SUCCESS) {
    fail(ErrorKind::kOutOfMemory, "computing a batch of {} tokens failed ({})", batch.tokens.size(),
         ggml_status_to_string(status));
  }
  if (prepared_->logits == nullptr) return {};
  return {static_cast<const float*>(prepared_->logits->data),
          batch.output_rows.size() * static_cast<size_t>(model_.hp.n_vocab)};
}

KvShape one_layer_shape(const detail::ModelState& model) {
  return {.n_layer = 1,
          .n_kv_head = model.hp.n_kv_head,
          .head_dim = model.hp.head_dim,
          .row_type = model.options.f32_rows ? RowType::kF32 : RowType::kF16,
          .value_in_key = model.hp.latent.content > 0};
}

KvShape global_shape(const detail::ModelState& model) {
  KvShape shape = one_layer_shape(model);
  shape.n_layer = model.hp.layers.n_global();
  return shape;
}

KvShape local_shape(const detail::ModelState& model) {
  KvShape shape = one_layer_shape(model);
  shape.n_layer = model.hp.layers.n_local();
  return shape;
}

RecurrentStates first_states(const detail::ModelState& model) {
  return empty_states(model.hp.layers.n_recurrent(), model.hp.state_size);
}

SegmentTable segment_table(const detail::ModelState& model) {
  return SegmentTable(model.hp.layers, global_shape(model));
}

AttentionSetup attention_setup(const detail::ModelState& model) {
  const KvShape shape = one_layer_shape(model);
  return {.kernels = &tuned_attention_kernels(),
          .layers = model.hp.layers,
          .shape = {.row_type = shape.row_type,
                    .head_dim = shape.head_dim,
                    .group = model.hp.group(),
                    .scale = model.hp.attention_scale,
                    .value_dim = model.hp.latent.content},
          .n_kv_head = shape.n_kv_head,
          .state_size = model.hp.state_size,
          .n_threads = model.options.n_threads};
}

}  // namespace ctxzip
