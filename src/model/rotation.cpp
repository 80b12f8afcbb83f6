#include "model/rotation.h"

#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <numeric>

#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr int64_t kPositionsAtOnce = 32;

// Adds the matrices of positions [first, first + n) to `sum`.
void add_rotations(const detail::ModelState& model, int64_t layer, int64_t first, int64_t n,
                   std::vector<double>& sum) {
  const int64_t dim = model.hp.head_dim;
  const size_t matrix_bytes = static_cast<size_t>(dim * dim * n) * sizeof(float);
  const ggml_context_ptr context(ggml_init({.mem_size = 3 * matrix_bytes + (size_t{1} << 20),
                                            .mem_buffer = nullptr,
                                            .no_alloc = false}));
  if (!context) fail(ErrorKind::kOutOfMemory, "no memory for {} rotations", n);
  ggml_tensor* units = ggml_new_tensor_3d(context.get(), GGML_TYPE_F32, dim, dim, n);
  auto* values = static_cast<float*>(units->data);
  std::fill_n(values, ggml_nelements(units), 0.0f);
  for (int64_t unit = 0; unit < n * dim; ++unit) values[unit * dim + unit % dim] = 1;
  ggml_tensor* positions = ggml_new_tensor_1d(context.get(), GGML_TYPE_I32, n);
  auto* numbers = static_cast<int32_t*>(positions->data);
  std::iota(numbers, numbers + n, static_cast<int32_t>(first));
  ggml_cgraph* graph = ggml_new_graph(context.get());
  ggml_tensor* rotated = model.architecture.rotate({model.hp, model.weights, context.get(), graph},
                                                   units, layer, positions);
  ggml_build_forward_expand(graph, rotated);
  if (ggml_graph_compute_with_ctx(context.get(), graph, model.options.n_threads) !=
      GGML_STATUS_SUCCESS) {
    fail(ErrorKind::kOutOfMemory, "computing {} rotations failed", n);
  }
  const auto* found = static_cast<const float*>(rotated->data);
  for (int64_t at = 0; at < n * dim * dim; ++at) {
    sum[static_cast<size_t>(at % (dim * dim))] += static_cast<double>(found[at]);
  }
}

}  // namespace

std::vector<double> average_rotation(const detail::ModelState& model, int64_t layer, int64_t first,
                                     int64_t n) {
  std::vector<double> average(static_cast<size_t>(model.hp.head_dim * model.hp.head_dim));
  for (int64_t done = 0; done < n; done += kPositionsAtOnce) {
    add_rotations(model, layer, first + done, std::min(kPositionsAtOnce, n - done), average);
  }
  for (double& value : average) value /= static_cast<double>(n);
  return average;
}

}  // namespace ctxzip
