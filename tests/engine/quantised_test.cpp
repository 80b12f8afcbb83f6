// Contexts with 8- and 4-bit rows: their sizes, their files, and what they lose.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "ctxzip/error.h"
#include "ctxzip/session.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "eval/llama_peer.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/logits.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr int64_t kContext = 500;

struct Case {
  const char* architecture;
  KvType kv;
  double max_kl;  // against f16 rows; random models have no redundancy, trained ones lose far less
};

void PrintTo(const Case& test, std::ostream* out) { *out << test.architecture; }

class Quantised : public testing::TestWithParam<Case> {
 protected:
  static Model tiny(bool f32_rows = false) {
    const std::string path = temp_path("quantised.gguf");
    TinyModel tiny = {.architecture = GetParam().architecture, .n_embd = 128};
    if (tiny.architecture == "gemma3") {
      tiny.n_layer = 6;
      tiny.window = 32;
    }
    write_tiny_model(tiny, path);
    return Model::load(path, {.n_threads = 2, .f32_rows = f32_rows});
  }

  static Context zipped(const Model& model, const ZipOptions& options) {
    PromptLayout layout;
    layout.prefix = {1, 2, 3};
    layout.turn = {4};
    ZipPlan plan = plan_zip(*model.state(), layout, random_tokens(kContext, 256, 5), options);
    if (options.schedule == Schedule::kStreaming) {
      return StreamZipper(model, std::move(plan), options).run();
    }
    Zipper zipper(model, std::move(plan), options);
    zipper.prefill();
    return zipper.take(options.method, options.allocation,
                       zipper.select(options.method, options.budget, options.allocation));
  }

  static std::vector<float> logits(const Model& model, const Context& context, int64_t batch) {
    const auto question = random_tokens(40, 256, 9);
    SegmentTable past = segment_table(*model.state());
    past.add(context.state()->rows);
    return TailRun(model, past, kContext + 3, 64).feed(question, batch);
  }
};

TEST_P(Quantised, StaysCloseToTheSameRowsAsF16) {
  const Model model = tiny();
  ZipOptions options = {.budget = {.ratio = 0.5}, .self_check = false};
  const Context plain = zipped(model, options);
  options.kv = GetParam().kv;
  const Context quantised = zipped(model, options);
  EXPECT_EQ(quantised.state()->rows.global.kept, plain.state()->rows.global.kept);
  for (const int64_t batch : {1, 40}) {
    const auto difference =
        compare_logits(logits(model, plain, batch), logits(model, quantised, batch), 256);
    std::printf("batch %d: mean KL %.3g\n", static_cast<int>(batch), difference.mean_kl);
    EXPECT_LE(difference.mean_kl, GetParam().max_kl);
  }
}

TEST_P(Quantised, FilesAndSessionsGiveTheSame) {
  const Model model = tiny();
  ZipOptions options = {.budget = {.ratio = 0.4}, .kv = GetParam().kv, .self_check = false};
  const Context context = zipped(model, options);
  const std::string path = temp_path("quantised.ctz");
  context.save(path);
  const Context opened = Context::open(model, path);
  EXPECT_EQ(opened.save(), context.save());
  EXPECT_EQ(logits(model, opened, 1), logits(model, context, 1));
  EXPECT_EQ(opened.report().row_type, GetParam().kv == KvType::kQ8 ? "q8" : "q4");
  EXPECT_EQ(opened.report().kv_bytes_full,
            zipped(model, {.self_check = false}).report().kv_bytes_full);
  EXPECT_EQ(Session(opened).ask("", {.max_tokens = 20}).tokens,
            Session(context).ask("", {.max_tokens = 20}).tokens);
  EXPECT_THROW(Session(Context::open(tiny(true), path)), Error);
}

TEST_P(Quantised, AStreamedOneIsQuantisedToo) {
  const Model model = tiny();
  const Context context = zipped(model, {.budget = {.ratio = 0.4},
                                         .schedule = Schedule::kStreaming,
                                         .kv = GetParam().kv,
                                         .chunk_tokens = 128,
                                         .self_check = false});
  EXPECT_EQ(context.report().pairs_kept, context.report().pairs_total * 2 / 5);
  EXPECT_LT(context.report().kv_bytes_kept, context.report().kv_bytes_full);
  EXPECT_EQ(logits(model, context, 1).size(), 40u * 256);
}

TEST_P(Quantised, ASizeBudgetIsNeverExceeded) {
  const Model model = tiny();
  for (const Schedule schedule : {Schedule::kTwoPass, Schedule::kStreaming}) {
    ZipOptions options = {.schedule = schedule, .kv = GetParam().kv, .self_check = false};
    for (const int64_t size : {60'000, 90'000, 123'457}) {
      options.budget = {.size_bytes = size};
      const Context context = zipped(model, options);
      EXPECT_LE(context.report().kv_bytes_kept, size);
      EXPECT_GE(context.report().kv_bytes_kept, size * 8 / 10);
    }
  }
}

// Earlier chunks are trimmed for their padding, and a last chunk of one token cannot make up for
// it.
TEST_P(Quantised, ASizeBudgetHoldsWithAShortLastChunk) {
  const Model model = tiny();
  for (const int64_t chunk : {499, 83, 31}) {
    for (int64_t size = 45'000; size < 140'000; size += 9'001) {
      const ZipReport report = zipped(model, {.budget = {.size_bytes = size},
                                              .schedule = Schedule::kStreaming,
                                              .kv = GetParam().kv,
                                              .chunk_tokens = chunk,
                                              .self_check = false})
                                   .report();
      EXPECT_LE(report.kv_bytes_kept, size) << chunk;
    }
  }
}

// From sizes that hold nothing to those that hold something: an error that names the least, or at
// least one pair within the size.
TEST_P(Quantised, ASizeThatHoldsNoPairIsRefused) {
  const Model model = tiny();
  for (const Schedule schedule : {Schedule::kTwoPass, Schedule::kStreaming}) {
    ZipOptions options = {.schedule = schedule, .kv = GetParam().kv, .self_check = false};
    bool refused = false;
    bool made = false;
    for (int64_t size = 2'000; size < 60'000; size += 1'000) {
      options.budget = {.size_bytes = size};
      try {
        const ZipReport report = zipped(model, options).report();
        EXPECT_LE(report.kv_bytes_kept, size);
        EXPECT_GE(report.pairs_kept, 1);
        made = true;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
        EXPECT_FALSE(made) << size << ": " << error.what();
        refused = true;
      }
    }
    EXPECT_TRUE(refused && made);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, Quantised,
    testing::Values(Case{"llama", KvType::kQ8, 1e-3}, Case{"llama", KvType::kQ4, 0.5},
                    Case{"qwen2", KvType::kQ8, 1e-3}, Case{"qwen2", KvType::kQ4, 0.5},
                    Case{"gemma3", KvType::kQ8, 1e-3}, Case{"gemma3", KvType::kQ4, 0.5}),
    [](const auto& test) {
      return std::string(test.param.architecture) + (test.param.kv == KvType::kQ8 ? "_q8" : "_q4");
    });

// With everything kept, all of the change is the rows' rounding.
TEST(QuantisedSmolLm2, LosesLittleAndIsSmall) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  std::ifstream file(data_path("sample.txt"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Model model = Model::load(model_path(kSmolLm2), {.n_threads = 2});
  for (const auto& [kv, bound] : {std::pair(KvType::kQ8, 0.01), std::pair(KvType::kQ4, 0.05)}) {
    const Context context = zip(model, text, {.budget = {.ratio = 1.0}, .kv = kv});
    std::printf("%s: delta_nll %.4f, probe %.4f\n", context.report().row_type.c_str(),
                *context.report().delta_nll, *context.report().delta_nll_probe);
    EXPECT_LE(*context.report().delta_nll, bound);
  }
}

// Nats per token of tokens[first..] under logits (n_tokens, n_vocab) of tokens[first - 1..].
double mean_nll(std::span<const float> logits, std::span<const Token> tokens, int64_t n_vocab) {
  double nats = 0;
  for (size_t at = 0; at < tokens.size(); ++at) {
    const auto row =
        logits.subspan(at * static_cast<size_t>(n_vocab), static_cast<size_t>(n_vocab));
    const double max = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit) - max);
    nats += max + std::log(sum) - static_cast<double>(row[static_cast<size_t>(tokens[at])]);
  }
  return nats / static_cast<double>(tokens.size());
}

// Keys of Qwen2.5 have channels far from the others: blocks of 32 channels with one scale, as
// llama.cpp's q4_0 cache has them, lose everything in these.
TEST(QuantisedQwen, PlainBlocksOfFourBitsLoseFarMore) {
  const std::string file = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
  CTXZIP_NEEDS_MODEL(file);
  std::ifstream stream(data_path("sample.txt"));
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  const Model model = Model::load(model_path(file), {.n_threads = 2});
  std::vector<Token> tokens = model.tokenize(text);
  constexpr size_t kBefore = 768;
  constexpr size_t kScored = 128;
  ASSERT_GT(tokens.size(), kBefore + kScored);
  tokens.resize(kBefore + kScored);
  const auto fed = std::span(tokens).subspan(kBefore - 1, kScored);
  const auto scored = std::span(tokens).subspan(kBefore, kScored);
  const int64_t n_vocab = model.info().n_vocab;

  const auto peer_nll = [&](ggml_type type) {
    eval::LlamaPeer peer(model_path(file), {.cache_type = type, .flash_attention = true});
    peer.feed_last(std::span(tokens).first(kBefore - 1), 512);
    return mean_nll(peer.feed(fed, 512), scored, n_vocab);
  };
  const auto our_nll = [&](KvType kv) {
    const ZipOptions options = {.budget = {.ratio = 1.0}, .kv = kv, .self_check = false};
    Zipper zipper(
        model,
        plan_zip(*model.state(), {}, {tokens.begin(), tokens.begin() + kBefore - 1}, options),
        options);
    zipper.prefill();
    const KvShape& shape = zipper.full_rows().global.shape();
    const Context context =
        zipper.take(Method::kKvzip, Allocation::kGlobal,
                    keep_all(shape.n_layer, shape.n_kv_head, static_cast<int64_t>(kBefore) - 1));
    SegmentTable past = segment_table(*model.state());
    past.add(context.state()->rows);
    return mean_nll(TailRun(model, past, kBefore - 1).feed(fed, 512), scored, n_vocab);
  };
  const double plain = peer_nll(GGML_TYPE_Q4_0) - peer_nll(GGML_TYPE_F16);
  const double ours = our_nll(KvType::kQ4) - our_nll(KvType::kF16);
  std::printf("4-bit rows, change of the loss: plain blocks %+.3f, ours %+.3f nats per token\n",
              plain, ours);
  EXPECT_LE(ours, 0.05);
  EXPECT_GT(plain, 10 * std::max(ours, 0.02));
}

}  // namespace
}  // namespace ctxzip::test
