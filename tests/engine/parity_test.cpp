// The engine's logits against libllama's, measured as KL divergence (quantised products round
// activations, so exactness is only asked of f32 models).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/engine_run.h"
#include "support/libllama.h"
#include "support/logits.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr int64_t kPrefillTokens = 512;
constexpr int64_t kDecodeTokens = 64;
// f32 sums in another order over at most 576 rows; logits are up to about 20.
constexpr double kMaxLogitDelta = 2e-3;
// Near-uniform logits would pass any KL test.
constexpr double kMaxEntropyShare = 0.7;

LogitDifference against_libllama(const std::string& path, bool f32_rows, int64_t batch) {
  const Model model = Model::load(path, {.n_threads = 2, .f32_rows = f32_rows});
  const int64_t n_vocab = model.info().n_vocab;
  const auto tokens = random_tokens(kPrefillTokens + kDecodeTokens, n_vocab, 7);
  const std::span<const Token> all(tokens);
  Libllama oracle(path, {.f32_cache = f32_rows});
  std::vector<float> expected = oracle.feed(all.first(kPrefillTokens), batch);
  const auto expected_decode = oracle.feed(all.subspan(kPrefillTokens), 1);
  expected.insert(expected.end(), expected_decode.begin(), expected_decode.end());

  const SegmentTable nothing(kv_shape(*model.state()));
  TailRun run(model, nothing, 0);
  std::vector<float> found = run.feed(all.first(kPrefillTokens), batch);
  const auto found_decode = run.feed(all.subspan(kPrefillTokens), 1);
  found.insert(found.end(), found_decode.begin(), found_decode.end());

  const LogitDifference difference = compare_logits(expected, found, n_vocab);
  EXPECT_LT(difference.mean_entropy, kMaxEntropyShare * std::log(static_cast<double>(n_vocab)));
  testing::Test::RecordProperty("mean_kl", std::to_string(difference.mean_kl));
  std::printf("mean KL %.3g, max KL %.3g, max |delta logit| %.3g, entropy share %.2f\n",
              difference.mean_kl, difference.max_kl, difference.max_delta,
              difference.mean_entropy / std::log(static_cast<double>(n_vocab)));
  return difference;
}

class ParityF32 : public testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(ParityF32, EqualsLibllama) {
  const auto [architecture, batch] = GetParam();
  const std::string path = temp_path(std::string(architecture) + ".gguf");
  write_tiny_model({.architecture = architecture, .tied = std::string(architecture) == "qwen2"},
                   path);
  const LogitDifference difference = against_libllama(path, true, batch);
  EXPECT_LE(difference.mean_kl, 1e-6);
  EXPECT_LE(difference.max_delta, kMaxLogitDelta);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ParityF32,
                         testing::Combine(testing::Values("llama", "qwen2"),
                                          testing::Values(1, 7, 512)));

// With f16 rows and f16 or f32 weights the rows' rounding is all there is.
class ParityTypes : public testing::TestWithParam<std::tuple<const char*, ggml_type>> {};

TEST_P(ParityTypes, CloseToLibllama) {
  const auto [architecture, type] = GetParam();
  const std::string path = temp_path("typed.gguf");
  write_tiny_model({.architecture = architecture, .type = type}, path);
  EXPECT_LE(against_libllama(path, false, 512).mean_kl, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ParityTypes,
                         testing::Combine(testing::Values("llama", "qwen2"),
                                          testing::Values(GGML_TYPE_F32, GGML_TYPE_F16)));

TEST(Parity, RopeFactors) {
  const std::string path = temp_path("factors.gguf");
  write_tiny_model({.rope_factors = true}, path);
  EXPECT_LE(against_libllama(path, true, 512).mean_kl, 1e-6);
}

// Products of quantised weights round their activations to int8, so a last bit that differs
// upstream becomes a visible step downstream: libllama with flash attention differs from libllama
// without by as much. That difference is the yardstick where it is above the fixed bound.
struct Noise {
  LogitDifference ours;      // against libllama without flash attention
  LogitDifference libllama;  // with against without
};

Noise measure_noise(const std::string& path, std::span<const Token> tokens) {
  const std::vector<float> plain = Libllama(path, {.f32_cache = false}).feed(tokens, 512);
  const std::vector<float> flash =
      Libllama(path, {.f32_cache = false, .flash_attention = true}).feed(tokens, 512);
  const Model model = Model::load(path, {.n_threads = 2});
  const SegmentTable nothing(kv_shape(*model.state()));
  const std::vector<float> ours = TailRun(model, nothing, 0).feed(tokens, 512);
  const Noise noise = {compare_logits(plain, ours, model.info().n_vocab),
                       compare_logits(plain, flash, model.info().n_vocab)};
  std::printf("mean KL %.3g (libllama against itself %.3g), top-1 agreement %.4f (%.4f)\n",
              noise.ours.mean_kl, noise.libllama.mean_kl, noise.ours.top1_agreement,
              noise.libllama.top1_agreement);
  return noise;
}

constexpr double kNoiseFactor = 1.5;     // two samples of the same noise
constexpr double kTop1Allowance = 0.03;  // of a few hundred tokens

class ParityQ8 : public testing::TestWithParam<const char*> {};

TEST_P(ParityQ8, WithinLibllamasOwnNoise) {
  const std::string path = temp_path("q8.gguf");
  write_tiny_model({.architecture = GetParam(), .type = GGML_TYPE_Q8_0}, path);
  const Noise noise = measure_noise(path, random_tokens(kPrefillTokens, 256, 7));
  EXPECT_LE(noise.ours.mean_kl, std::max(1e-4, kNoiseFactor * noise.libllama.mean_kl));
}

INSTANTIATE_TEST_SUITE_P(Tiny, ParityQ8, testing::Values("llama", "qwen2"));

std::vector<Token> sample_tokens(const Model& model, size_t n) {
  std::ifstream file(data_path("sample.txt"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  std::vector<Token> tokens = model.tokenize(text);
  tokens.resize(std::min(n, tokens.size()));
  return tokens;
}

class ParityReal : public testing::TestWithParam<const char*> {};

TEST_P(ParityReal, WithinLibllamasOwnNoise) {
  CTXZIP_NEEDS_MODEL(GetParam());
  const std::string path = model_path(GetParam());
  const Noise noise = measure_noise(path, sample_tokens(Model::load(path), 200));
  EXPECT_LE(noise.ours.mean_kl, std::max(1e-3, kNoiseFactor * noise.libllama.mean_kl));
  EXPECT_GE(noise.ours.top1_agreement,
            std::min(0.99, noise.libllama.top1_agreement - kTop1Allowance));
}

INSTANTIATE_TEST_SUITE_P(Installed, ParityReal,
                         testing::Values(kSmolLm2, "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"));

// The real model without the noise: the same weights as f32.
TEST(ParitySmolLm2, DequantisedEqualsLibllama) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const std::string path = temp_path("dequantised.gguf");
  dequantise_model(model_path(kSmolLm2), path);
  const Model model = Model::load(path, {.n_threads = 2, .f32_rows = true});
  const std::vector<Token> tokens = sample_tokens(model, 128);
  const std::vector<float> expected = Libllama(path, {}).feed(tokens, 512);
  const SegmentTable nothing(kv_shape(*model.state()));
  const LogitDifference difference =
      compare_logits(expected, TailRun(model, nothing, 0).feed(tokens, 512), model.info().n_vocab);
  std::printf("mean KL %.3g, max |delta logit| %.3g, top-1 agreement %.4f\n", difference.mean_kl,
              difference.max_delta, difference.top1_agreement);
  EXPECT_LE(difference.mean_kl, 1e-6);
  EXPECT_LE(difference.max_delta, kMaxLogitDelta);
  EXPECT_GE(difference.top1_agreement, 0.99);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace ctxzip::test
