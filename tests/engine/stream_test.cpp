// The streaming schedule: what it keeps, what it holds at most, and what it loses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "ctxzip/error.h"
#include "ctxzip/session.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/logits.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr int64_t kContext = 700;

PromptLayout layout() {
  PromptLayout layout;
  layout.prefix = {1, 2, 3};
  layout.turn = {4};
  return layout;
}

Model tiny(const char* architecture, int n_threads = 2, ggml_type type = GGML_TYPE_F32) {
  const std::string path = temp_path("stream.gguf");
  TinyModel tiny = {.architecture = architecture, .type = type};
  if (tiny.architecture == "gemma3") {
    tiny.n_layer = 6;
    tiny.window = 32;
  }
  write_tiny_model(tiny, path);
  return Model::load(path, {.n_threads = n_threads, .f32_rows = true});
}

ZipOptions streaming(double ratio, int64_t chunk = 128) {
  return {.budget = {.ratio = ratio},
          .schedule = Schedule::kStreaming,
          .chunk_tokens = chunk,
          .self_check = false};
}

StreamZipper zipper(const Model& model, const ZipOptions& options, int64_t n_context = kContext) {
  return {model, plan_zip(*model.state(), layout(), random_tokens(n_context, 256, 5), options),
          options};
}

class Stream : public testing::TestWithParam<const char*> {};

TEST_P(Stream, KeepsExactlyTheBudgetAndHoldsLittleMore) {
  const Model model = tiny(GetParam());
  for (const double ratio : {0.1, 0.3, 0.77, 1.0}) {
    for (const int64_t n_context : {100, 128, 129, 700}) {
      StreamZipper stream = zipper(model, streaming(ratio), n_context);
      const Context context = stream.run();
      const ZipReport& report = context.report();
      const double total = static_cast<double>(report.pairs_total);
      EXPECT_EQ(report.context_tokens, n_context);
      EXPECT_EQ(report.pairs_kept, static_cast<int64_t>(std::ceil(ratio * total - 1e-9)));
      EXPECT_EQ(report.schedule, "streaming");
      const double pair = 2.0 * 4 * static_cast<double>(model.info().head_dim);
      const double heads = total / static_cast<double>(n_context);
      const double chunk = std::min<double>(128, static_cast<double>(n_context));
      EXPECT_LE(
          static_cast<double>(report.peak_kv_bytes),
          pair * (1.05 * static_cast<double>(report.pairs_kept) + heads * (chunk + 2 * 3)) + pair);
    }
  }
}

// With nothing evicted, chunks are only another batch split.
TEST_P(Stream, WithoutEvictionItIsTheFullCache) {
  const Model model = tiny(GetParam());
  const auto question = random_tokens(30, 256, 9);
  const auto logits = [&](const Context& context) {
    SegmentTable past = segment_table(*model.state());
    past.add(context.state()->rows);
    return TailRun(model, past, kContext + 3, 64).feed(question, 30);
  };
  const ZipOptions two_pass = {.self_check = false};
  Zipper full(model, plan_zip(*model.state(), layout(), random_tokens(kContext, 256, 5), two_pass),
              two_pass);
  full.prefill();
  const KvShape shape = global_shape(*model.state());
  const auto expected = logits(full.take(Method::kKvzip, Allocation::kGlobal,
                                         keep_all(shape.n_layer, shape.n_kv_head, kContext)));
  const auto found = logits(zipper(model, streaming(1.0)).run());
  for (size_t at = 0; at < expected.size(); ++at)
    ASSERT_NEAR(found[at], expected[at], kGeluLogitDelta);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Stream, testing::Values("llama", "gemma3"));

// What the two-pass schedule keeps under the same options.
KeepSet two_pass_keeps(const Model& model, ZipOptions options) {
  options.schedule = Schedule::kTwoPass;
  Zipper full(model, plan_zip(*model.state(), layout(), random_tokens(kContext, 256, 5), options),
              options);
  full.prefill();
  return full.select(Method::kKvzip, options.budget, Allocation::kGlobal);
}

// One chunk is the two-pass schedule with local attention.
TEST(StreamZip, OneChunkKeepsWhatTwoPassKeeps) {
  const Model model = tiny("llama");
  const ZipOptions options = streaming(0.3, 4096);
  const Context streamed = zipper(model, options).run();
  EXPECT_EQ(streamed.state()->rows.global.kept, two_pass_keeps(model, options));
}

// While nothing is evicted, which a ratio near 1 puts off to the last chunk, streaming scores what
// two-pass scores, from the same place behind the text: the same pairs go.
TEST(StreamZip, ScoresAreThoseOfTwoPass) {
  const Model model = tiny("llama");
  const ZipOptions options = streaming(0.96);
  const Context streamed = zipper(model, options).run();
  const KeepSet wanted = two_pass_keeps(model, options);
  const KeepSet& kept = streamed.state()->rows.global.kept;
  ASSERT_EQ(kept.pairs_kept(), wanted.pairs_kept());
  const int64_t n_dropped = 6 * kContext - wanted.pairs_kept();
  EXPECT_LE(wanted.pairs_kept() - pairs_shared(kept, wanted), n_dropped / 50);
}

TEST(StreamZip, SameBytesWithAnyNumberOfThreads) {
  std::vector<std::byte> first;
  for (const int n_threads : {1, 2, 3}) {
    const Context context = zipper(tiny("llama", n_threads, GGML_TYPE_Q8_0), streaming(0.3)).run();
    if (first.empty()) first = context.save();
    EXPECT_EQ(context.save(), first);
  }
}

TEST(StreamZip, EveryAllocationAndMethodGivesItsCount) {
  const Model model = tiny("llama");
  for (const Allocation allocation :
       {Allocation::kGlobal, Allocation::kLayer, Allocation::kUniform}) {
    for (const Method method : {Method::kKvzip, Method::kRandom}) {
      ZipOptions options = streaming(0.4);
      options.allocation = allocation;
      options.method = method;
      EXPECT_EQ(zipper(model, options).run().report().pairs_kept, 6 * kContext * 2 / 5);
    }
  }
}

TEST(StreamZip, ShortTextsAndQualityBudgets) {
  const Model model = tiny("llama");
  EXPECT_EQ(zipper(model, streaming(0.3), 20).run().report().pairs_kept, 6 * 20);
  ZipOptions options = streaming(0.3);
  options.budget = {.quality = 0.1};
  EXPECT_THROW(zipper(model, options), Error);
}

TEST(StreamZip, TheEstimateIsBelowTwoPass) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  std::ifstream file(data_path("sample.txt"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Model model = Model::load(model_path(kSmolLm2));
  ZipOptions options = {.budget = {.ratio = 0.3}, .chunk_tokens = 256};
  const ZipEstimate two_pass = estimate_zip(model, text, options);
  options.schedule = Schedule::kStreaming;
  const ZipEstimate streamed = estimate_zip(model, text, options);
  EXPECT_EQ(streamed.kv_bytes_full, two_pass.kv_bytes_full);
  EXPECT_LT(streamed.peak_bytes, two_pass.peak_bytes - two_pass.kv_bytes_full / 2);
  EXPECT_LT(streamed.flops, two_pass.flops);
}

TEST(StreamZip, LosesLittleOnSmolLm2) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  std::ifstream file(data_path("sample.txt"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Context context =
      zip(Model::load(model_path(kSmolLm2)), text,
          {.budget = {.ratio = 0.3}, .schedule = Schedule::kStreaming, .chunk_tokens = 512});
  std::printf("delta_nll %.4f, probe %.4f\n", *context.report().delta_nll,
              *context.report().delta_nll_probe);
  EXPECT_LE(*context.report().delta_nll, 0.05);
  EXPECT_LE(*context.report().delta_nll_probe, 0.15);
}

}  // namespace
}  // namespace ctxzip::test
