#include "machine_probe.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/stopwatch.h"

// clang-format off: this order is Highway's.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "machine_probe.cpp"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/targets.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ctxzip::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// n is a multiple of 256.
float sum_floats(const float* in, size_t n) {
  const hn::ScalableTag<float> d;
  constexpr size_t kLanes = hn::MaxLanes(hn::ScalableTag<float>());
  hn::Vec<decltype(d)> sum[8];
  for (auto& part : sum) part = hn::Zero(d);
  for (size_t at = 0; at < n; at += 8 * kLanes) {
    for (size_t part = 0; part < 8; ++part) {
      sum[part] = hn::Add(sum[part], hn::LoadU(d, in + at + part * kLanes));
    }
  }
  for (size_t part = 1; part < 8; ++part) sum[0] = hn::Add(sum[0], sum[part]);
  return hn::GetLane(hn::SumOfLanes(d, sum[0]));
}

// Returns the number of floating-point operations done; writes to `sink`.
double multiply_add(int64_t repeats, float* sink) {
  const hn::ScalableTag<float> d;
  constexpr int kChains = 12;
  hn::Vec<decltype(d)> acc[kChains];
  for (int chain = 0; chain < kChains; ++chain) acc[chain] = hn::Set(d, *sink);
  const auto factor = hn::Set(d, 0.999f);
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    for (int chain = 0; chain < kChains; ++chain) {
      acc[chain] = hn::MulAdd(acc[chain], factor, factor);
    }
  }
  for (int chain = 1; chain < kChains; ++chain) acc[0] = hn::Add(acc[0], acc[chain]);
  *sink = hn::GetLane(hn::SumOfLanes(d, acc[0]));
  return static_cast<double>(repeats) * kChains * 2 * static_cast<double>(hn::Lanes(d));
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace ctxzip::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ctxzip::bench {
namespace {

HWY_EXPORT(sum_floats);
HWY_EXPORT(multiply_add);

constexpr size_t kFloats = size_t{64} << 20;  // 256 MiB, beyond any cache
// Short stretches, so that the best of them is undisturbed on a machine with other work to do.
constexpr size_t kStretchFloats = size_t{4} << 20;
constexpr int64_t kStretchRepeats = 200'000;
constexpr int kFmaTries = 200;
constexpr int kReadPasses = 4;

// Threads start each stretch together; its time is that of the last to finish.
double read_rate(const std::vector<float>& data, size_t n_threads) {
  double best = 0;
  std::atomic<float> sink = 0;
  const size_t stretch = n_threads * kStretchFloats;
  for (int pass = 0; pass < kReadPasses; ++pass) {
    for (size_t at = 0; at + stretch <= data.size(); at += stretch) {
      const auto start = std::chrono::steady_clock::now();
      const auto read = [&](size_t thread) {
        sink = HWY_DYNAMIC_DISPATCH(sum_floats)(data.data() + at + thread * kStretchFloats,
                                                kStretchFloats);
      };
      std::vector<std::thread> others;
      for (size_t thread = 1; thread < n_threads; ++thread) others.emplace_back(read, thread);
      read(0);
      for (std::thread& other : others) other.join();
      best = std::max(best, static_cast<double>(stretch * sizeof(float)) / seconds_since(start));
    }
  }
  return best;
}

double fma_rate() {
  double best = 0;
  float sink = 1;
  for (int attempt = 0; attempt < kFmaTries; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    const double operations = HWY_DYNAMIC_DISPATCH(multiply_add)(kStretchRepeats, &sink);
    best = std::max(best, operations / seconds_since(start));
  }
  return best;
}

}  // namespace

MachineLimits probe_machine() {
  const std::vector<float> data(kFloats, 1.0f);
  return {read_rate(data, 1), read_rate(data, 2), fma_rate()};
}

}  // namespace ctxzip::bench
#endif
