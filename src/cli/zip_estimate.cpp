#include "cli/zip_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "cli/byte_size.h"
#include "cli/human.h"
#include "cli/model_index.h"

namespace ctxzip::cli {
namespace {

// Quantised weights on one core with AVX2 and nothing newer.
constexpr double kGuessFlopsPerThreadS = 18e9;
// Fixed costs dominate below, and would be learnt as a slow machine.
constexpr int64_t kLearnFromTokens = 512;

double threads(int n_threads) {
  return n_threads > 0 ? n_threads : std::max(1U, std::thread::hardware_concurrency());
}

// MemAvailable of the kernel, or nothing where there is no such figure.
std::optional<int64_t> available_memory() {
  std::FILE* const file = std::fopen("/proc/meminfo", "r");
  if (file == nullptr) return std::nullopt;
  std::optional<int64_t> bytes;
  char line[256];
  while (!bytes && std::fgets(line, sizeof line, file) != nullptr) {
    long long kib = 0;
    if (std::sscanf(line, "MemAvailable: %lld kB", &kib) == 1) bytes = int64_t{kib} * 1024;
  }
  std::fclose(file);
  return bytes;
}

}  // namespace

double estimated_seconds(const ZipEstimate& estimate, const Model& model, int n_threads) {
  const auto known = known_model(model.info().fingerprint);
  const double speed =
      known && known->flops_per_thread_s > 0 ? known->flops_per_thread_s : kGuessFlopsPerThreadS;
  return estimate.flops / (speed * threads(n_threads));
}

std::string describe_estimate(const ZipEstimate& estimate, double seconds) {
  return fmt::format("{} tokens: about {} of memory beside the model, about {}",
                     format_count(estimate.context_tokens), format_bytes(estimate.peak_bytes),
                     format_seconds(seconds));
}

std::optional<std::string> memory_warning(const ZipEstimate& estimate) {
  const auto available = available_memory();
  if (!available || *available >= estimate.peak_bytes) return std::nullopt;
  return fmt::format("this needs about {} of memory, {} are free; a shorter text needs less",
                     format_bytes(estimate.peak_bytes), format_bytes(*available));
}

void learn_speed(const ZipEstimate& estimate, const ZipReport& report, const Model& model,
                 int n_threads) {
  const double seconds = report.prefill_s + report.score_s + report.check_s;
  if (seconds <= 0 || estimate.context_tokens < kLearnFromTokens) return;
  double speed = estimate.flops / (seconds * threads(n_threads));
  // A run that was stopped or starved for a while says little about the next one.
  if (const auto known = known_model(model.info().fingerprint)) {
    speed = std::max(speed, known->flops_per_thread_s / 2);
  }
  remember_speed(model.info().fingerprint, speed);
}

}  // namespace ctxzip::cli
