// Products by weight type and number of tokens: ggml's way (mapped, and repacked where it repacks)
// against unpacking to float, in GFLOP/s of the same run.
#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml-cpu.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "kernels/matmul.h"

namespace ctxzip {
namespace {

constexpr int kThreads = 2;
constexpr int kRounds = 5;
constexpr int64_t kMostTokens = 512;
constexpr int64_t kTokens[] = {1, 2, 4, 8, 16, 32, 128, kMostTokens};

// Products with few tokens are short and repeated.
int64_t repeats(int64_t n_tokens) { return std::max<int64_t>(1, 16 / n_tokens); }

double median_seconds(const std::function<void()>& run) {
  std::vector<double> seconds;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    run();
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
  return seconds[kRounds / 2];
}

ggml_backend_buffer_type_t repack_type() {
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  const auto get =
      reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(ggml_backend_reg_get_proc_address(
          ggml_backend_dev_backend_reg(device), "ggml_backend_dev_get_extra_bufts"));
  auto* types = get != nullptr ? get(device) : nullptr;
  return types != nullptr ? *types : nullptr;
}

// ggml's product with the weights in a buffer of `type`; 0 where it cannot.
double ggml_seconds(ggml_type weight_type, int64_t n_in, int64_t n_out,
                    const std::vector<std::byte>& weights, std::span<const float> x,
                    ggml_backend_buffer_type_t type) {
  const int64_t n_tokens = static_cast<int64_t>(x.size()) / n_in;
  const ggml_backend_ptr backend(ggml_backend_cpu_init());
  ggml_backend_cpu_set_n_threads(backend.get(), kThreads);
  const ggml_context_ptr leaves(
      ggml_init({.mem_size = 4 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  ggml_tensor* w = ggml_new_tensor_2d(leaves.get(), weight_type, n_in, n_out);
  const ggml_backend_buffer_ptr buffer(
      ggml_backend_alloc_ctx_tensors_from_buft(leaves.get(), type));
  if (!buffer) return 0;
  const ggml_context_ptr context(
      ggml_init({.mem_size = 8 * ggml_tensor_overhead() + ggml_graph_overhead_custom(8, false),
                 .mem_buffer = nullptr,
                 .no_alloc = true}));
  ggml_cgraph* graph = ggml_new_graph_custom(context.get(), 8, false);
  ggml_tensor* input = ggml_new_tensor_2d(context.get(), GGML_TYPE_F32, n_in, n_tokens);
  ggml_set_input(input);
  ggml_tensor* product = ggml_mul_mat(context.get(), w, input);
  ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  if (!ggml_backend_dev_supports_op(device, product)) return 0;
  ggml_backend_tensor_set(w, weights.data(), 0, weights.size());
  ggml_build_forward_expand(graph, product);
  const ggml_gallocr_ptr allocator(
      ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend.get())));
  ggml_gallocr_alloc_graph(allocator.get(), graph);
  ggml_backend_tensor_set(input, x.data(), 0, x.size_bytes());
  const double seconds = median_seconds([&] {
    for (int64_t repeat = 0; repeat < repeats(n_tokens); ++repeat)
      ggml_backend_graph_compute(backend.get(), graph);
  });
  return seconds / static_cast<double>(repeats(n_tokens));
}

double unpacked_seconds(const WeightMatrix& matrix, std::span<const float> x) {
  const int64_t n_tokens = static_cast<int64_t>(x.size()) / matrix.n_in;
  std::vector<float> y(static_cast<size_t>(n_tokens * matrix.n_out));
  const double seconds = median_seconds([&] {
    const auto part = [&](int thread) {
      for (int64_t repeat = 0; repeat < repeats(n_tokens); ++repeat) {
        for (int64_t first = thread * kMatmulRows; first < matrix.n_out;
             first += kThreads * kMatmulRows) {
          tuned_matmul_kernels().multiply(matrix, first, x.data(), matrix.n_in, n_tokens, y.data(),
                                          matrix.n_out);
        }
      }
    };
    std::thread other(part, 1);
    part(0);
    other.join();
  });
  return seconds / static_cast<double>(repeats(n_tokens));
}

struct StoredType {
  ggml_type ggml;
  std::optional<WeightType> ours;  // none: only ggml's products are compared
};
constexpr StoredType kTypes[] = {{GGML_TYPE_Q4_1, WeightType::kQ4_1},
                                 {GGML_TYPE_Q5_0, WeightType::kQ5_0},
                                 {GGML_TYPE_Q5_1, WeightType::kQ5_1},
                                 {GGML_TYPE_Q8_0, WeightType::kQ8_0},
                                 {GGML_TYPE_Q4_0, {}},
                                 {GGML_TYPE_Q4_K, {}},
                                 {GGML_TYPE_Q5_K, {}},
                                 {GGML_TYPE_Q6_K, {}},
                                 {GGML_TYPE_IQ4_NL, {}}};

void print_type(const StoredType& type, int64_t n_in, int64_t n_out,
                const std::vector<float>& values, const std::vector<float>& x) {
  std::vector<std::byte> weights(ggml_row_size(type.ggml, n_in) * static_cast<size_t>(n_out));
  ggml_quantize_chunk(type.ggml, values.data(), weights.data(), 0, n_out, n_in, nullptr);
  const auto extra = repack_type();
  std::printf("%-6s", ggml_type_name(type.ggml));
  for (const int64_t n_tokens : kTokens) {
    const std::span<const float> input(x.data(), static_cast<size_t>(n_tokens * n_in));
    const double gflop = 2e-9 * static_cast<double>(n_in * n_out * n_tokens);
    const double mapped =
        ggml_seconds(type.ggml, n_in, n_out, weights, input, ggml_backend_cpu_buffer_type());
    const double repacked =
        extra == nullptr ? 0 : ggml_seconds(type.ggml, n_in, n_out, weights, input, extra);
    const double unpacked = type.ours
                                ? unpacked_seconds({.data = weights.data(),
                                                    .row_bytes = ggml_row_size(type.ggml, n_in),
                                                    .n_in = n_in,
                                                    .n_out = n_out,
                                                    .type = *type.ours},
                                                   input)
                                : 0;
    const auto speed = [&](double seconds) { return seconds > 0 ? gflop / seconds : 0; };
    std::printf("  %5.0f %5.0f %5.0f", speed(mapped), speed(repacked), speed(unpacked));
    std::fflush(stdout);
  }
  std::printf("\n");
}

void run(int64_t n_in, int64_t n_out) {
  std::printf(
      "%lld x %lld, %d threads, medians of %d, GFLOP/s: mapped, repacked, "
      "unpacked (0: never)\n%-6s",
      static_cast<long long>(n_in), static_cast<long long>(n_out), kThreads, kRounds, "tokens");
  for (const int64_t n_tokens : kTokens) {
    std::printf("  %17lld", static_cast<long long>(n_tokens));
  }
  std::printf("\n");
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(n_in * n_out));
  for (float& value : values) value = normal(random);
  std::vector<float> x(static_cast<size_t>(kMostTokens * n_in));
  for (float& value : x) value = normal(random);
  for (const StoredType& type : kTypes) {
    if (n_in % ggml_blck_size(type.ggml) == 0) print_type(type, n_in, n_out, values, x);
  }
  std::printf("\n");
}

}  // namespace
}  // namespace ctxzip

int main() {
  ctxzip::run(576, 1536);
  ctxzip::run(1536, 8960);
}
