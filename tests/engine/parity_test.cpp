// The engine's logits against libllama's, measured as KL divergence (quantised products round
// activations, so exactness is only asked of f32 models).
#include <gtest/gtest.h>

#include <cmath>

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

class ParityTypes : public testing::TestWithParam<std::tuple<const char*, ggml_type>> {};

TEST_P(ParityTypes, CloseToLibllama) {
  const auto [architecture, type] = GetParam();
  const std::string path = temp_path("typed.gguf");
  write_tiny_model({.architecture = architecture, .type = type}, path);
  EXPECT_LE(against_libllama(path, false, 512).mean_kl, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Tiny, ParityTypes,
                         testing::Combine(testing::Values("llama", "qwen2"),
                                          testing::Values(GGML_TYPE_F32, GGML_TYPE_F16,
                                                          GGML_TYPE_Q8_0)));

TEST(Parity, RopeFactors) {
  const std::string path = temp_path("factors.gguf");
  write_tiny_model({.rope_factors = true}, path);
  EXPECT_LE(against_libllama(path, true, 512).mean_kl, 1e-6);
}

class ParityReal : public testing::TestWithParam<const char*> {};

TEST_P(ParityReal, CloseToLibllama) {
  CTXZIP_NEEDS_MODEL(GetParam());
  const std::string path = model_path(GetParam());
  const Model model = Model::load(path, {.n_threads = 2});
  const auto text_tokens = model.tokenize(
      "The lighthouse at Kettle Point was built in 1878 by Anna Breck. It stands 31 metres tall "
      "and is painted white. "
      "Every evening its keeper climbs 164 steps, winds the clockwork and lights the lamp. In 1931 "
      "the lamp was "
      "replaced by an electric one, and the keeper's house became a small museum of the sea.");
  Libllama oracle(path, {.f32_cache = false, .flash_attention = true});
  const std::vector<float> expected = oracle.feed(text_tokens, 512);
  const SegmentTable nothing(kv_shape(*model.state()));
  TailRun run(model, nothing, 0);
  const std::vector<float> found = run.feed(text_tokens, 512);
  const LogitDifference difference = compare_logits(expected, found, model.info().n_vocab);
  std::printf("mean KL %.3g, top-1 agreement %.4f\n", difference.mean_kl,
              difference.top1_agreement);
  EXPECT_LE(difference.mean_kl, 1e-3);
  EXPECT_GE(difference.top1_agreement, 0.99);
}

INSTANTIATE_TEST_SUITE_P(Installed, ParityReal,
                         testing::Values(kSmolLm2, "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"));

}  // namespace
}  // namespace ctxzip::test
