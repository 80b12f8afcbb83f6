// Every scoring method against its reference, and what they have in common.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "cache/read_row.h"
#include "ctxzip/error.h"
#include "engine/golden.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "recall/sigma.h"
#include "score/branch_sigma.h"
#include "score/method_table.h"
#include "score/prefill_attention.h"
#include "score/protected_rows.h"
#include "score/streaming_llm.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr Allocation kAllocations[] = {Allocation::kGlobal, Allocation::kLayer,
                                       Allocation::kUniform, Allocation::kNative};

bool needs_heads(Method method) { return method_traits(method).source == ScoreSource::kHeads; }
bool needs_unrotated_rows(Method method) {
  return method_traits(method).source == ScoreSource::kUnrotatedRows;
}

// The first n rows of every head.
Scores first_rows(const Scores& scores, int64_t n) {
  Scores result = filled_scores(scores.n_layer, scores.n_kv_head, n, 0);
  for (int64_t layer = 0; layer < scores.n_layer; ++layer) {
    for (int64_t kv_head = 0; kv_head < scores.n_kv_head; ++kv_head) {
      std::copy_n(scores.head(layer, kv_head), n, result.head(layer, kv_head));
    }
  }
  return result;
}

void expect_reference(const nlohmann::json& reference, const Scores& found) {
  const Scores expected = golden_scores(reference);
  const Scores compared = first_rows(found, expected.n_context);
  expect_close(expected, compared);
  for (const double ratio : {0.1, 0.3, 0.7}) expect_same_choice(expected, compared, ratio);
}

class GoldenMethods : public testing::TestWithParam<const char*> {
 protected:
  GoldenMethods()
      : golden_(load_golden(std::string("tiny-") + GetParam() + "-methods.json")),
        model_(Model::load(data_path("golden/" + golden_.json["model"].get<std::string>()),
                           {.n_threads = 2, .f32_rows = true})) {}

  // Batches of 128: what one prefill notes down comes from several.
  Zipper prefilled(Method method) {
    PromptLayout layout;
    layout.prefix = golden_.prefix;
    const ZipOptions options = {.method = method, .self_check = false, .batch_tokens = 128};
    Zipper zipper(model_, plan_zip(*model_.state(), layout, golden_.context, options), options);
    zipper.prefill();
    return zipper;
  }
  void expect_method(Method method, const char* reference) {
    SCOPED_TRACE(reference);
    expect_reference(golden_.json[reference], prefilled(method).scores(method));
  }

  Golden golden_;
  Model model_;
};

TEST_P(GoldenMethods, PrefillAttention) {
  expect_method(Method::kH2o, "h2o");
  expect_method(Method::kH2oMean, "h2o_mean");
  expect_method(Method::kSnapKv, "snapkv");
  expect_method(Method::kPyramidKv, "snapkv");
}

TEST_P(GoldenMethods, KeysAndQueries) {
  expect_method(Method::kKnorm, "knorm");
  expect_method(Method::kExpectedAttention, "expected_attention");
}

TEST_P(GoldenMethods, VariantsOfKvzip) {
  const Golden passes = load_golden(std::string("tiny-") + GetParam() + "-kvzip.json");
  const auto run = [&](ReconScore kind) {
    return run_golden_passes(model_, passes, ReconAttention::kFull, kind);
  };
  expect_reference(golden_.json["kvzip_plus"], run(ReconScore::kNormalised));
  expect_reference(golden_.json["kvzip_logit"], run(ReconScore::kLogit));
}

TEST_P(GoldenMethods, StreamingLlmKeepsTheNewestRows) {
  const auto& reference = golden_.json["streaming_llm"];
  const int64_t kept = reference["kept"];
  const double ratio = static_cast<double>(kept) / static_cast<double>(golden_.context.size());
  Zipper zipper = prefilled(Method::kStreamingLlm);
  const KeepSet found = zipper.select(Method::kStreamingLlm, {.ratio = ratio}, Allocation::kNative);
  for (const std::vector<uint32_t>& rows : found.rows) {
    EXPECT_EQ(rows, reference["rows"].get<std::vector<uint32_t>>());
  }
}

TEST_P(GoldenMethods, PyramidBudgets) {
  for (const auto& pyramid : golden_.json["pyramids"]) {
    const int64_t n_layer = pyramid["layers"];
    const int64_t rows = pyramid["rows"];
    const int64_t kept = pyramid["kept"];
    const BudgetRule rule = method_traits(Method::kPyramidKv).rule;
    const int64_t total = n_layer * (kObservedWindow + kept);
    const std::vector<int64_t> found =
        pyramid_budgets(total, n_layer, 1, rows + kObservedWindow, rule);
    int64_t sum = 0;
    for (size_t layer = 0; layer < found.size(); ++layer) {
      sum += found[layer];
      // The reference rounds each layer by itself.
      EXPECT_NEAR(static_cast<double>(found[layer] - kObservedWindow),
                  pyramid["budgets"][layer].get<double>(), 1);
    }
    EXPECT_EQ(sum, total);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenMethods, testing::Values("llama", "qwen2"));

constexpr int64_t kContext = 200;

// Written once: models stay mapped.
Model tiny(const TinyModel& kind = {}, int n_threads = 2) {
  static std::set<std::string> written;
  const std::string path = temp_path("methods-" + kind.architecture + ".gguf");
  if (written.insert(path).second) write_tiny_model(kind, path);
  return Model::load(path, {.n_threads = n_threads});
}

ZipPlan tiny_plan(const Model& model, const ZipOptions& options) {
  PromptLayout layout;
  layout.prefix = random_tokens(3, model.info().n_vocab, 3);
  return plan_zip(*model.state(), layout, random_tokens(kContext, model.info().n_vocab, 1),
                  options);
}

Zipper tiny_zipper(const Model& model, Method method) {
  const ZipOptions options = {.method = method, .self_check = false, .batch_tokens = 64};
  Zipper zipper(model, tiny_plan(model, options), options);
  zipper.prefill();
  return zipper;
}

TEST(Methods, KeepExactCountsUnderEveryAllocation) {
  const Model model = tiny();
  Zipper zipper = tiny_zipper(model, Method::kKvzip);
  for (const MethodInfo& info : zip_methods()) {
    if (needs_heads(info.method) || needs_unrotated_rows(info.method) ||
        info.method == Method::kKvzipPrompt) {
      continue;
    }
    for (const Allocation allocation : kAllocations) {
      // Of 1,200 pairs.
      for (const auto& [ratio, n_pairs] :
           {std::pair{0.05, 60}, std::pair{0.301, 362}, std::pair{0.95, 1140}}) {
        const KeepSet kept = zipper.select(info.method, {.ratio = ratio}, allocation);
        EXPECT_EQ(kept.pairs_kept(), n_pairs) << info.name;
      }
    }
    const KeepSet kept = zipper.select(info.method, {.ratio = 0.3}, Allocation::kNative);
    const Context context = zipper.copy(info.method, Allocation::kNative, kept);
    EXPECT_EQ(context.report().method, info.name);
    EXPECT_EQ(context.report().allocation, "native");
  }
}

TEST(Methods, TheObservedWindowStays) {
  const Model model = tiny();
  Zipper zipper = tiny_zipper(model, Method::kSnapKv);
  for (const Method method : {Method::kSnapKv, Method::kPyramidKv}) {
    for (const Allocation allocation : kAllocations) {
      const KeepSet kept = zipper.select(method, {.ratio = 0.3}, allocation);
      for (const std::vector<uint32_t>& rows : kept.rows) {
        ASSERT_GE(rows.size(), static_cast<size_t>(kObservedWindow));
        EXPECT_EQ(rows[rows.size() - kObservedWindow], kContext - kObservedWindow);
      }
    }
    // 20 of 200 rows are fewer than the window: its newest ones.
    const KeepSet few = zipper.select(method, {.ratio = 0.1}, Allocation::kUniform);
    for (const std::vector<uint32_t>& rows : few.rows) EXPECT_EQ(rows.front(), kContext - 20);
  }
}

TEST(Methods, PyramidsGiveEarlyLayersMore) {
  const Model model = tiny();
  Zipper zipper = tiny_zipper(model, Method::kPyramidKv);
  const KeepSet kept = zipper.select(Method::kPyramidKv, {.ratio = 0.4}, Allocation::kNative);
  EXPECT_GT(kept.at(0, 0).size(), kept.at(1, 0).size());
  EXPECT_GT(kept.at(1, 0).size(), kept.at(2, 0).size());
}

TEST(Methods, HeavyHittersShareWithTheNewestNatively) {
  const Model model = tiny();
  Zipper zipper = tiny_zipper(model, Method::kH2o);
  const KeepSet kept = zipper.select(Method::kH2o, {.ratio = 0.2}, Allocation::kNative);
  for (const std::vector<uint32_t>& rows : kept.rows) {
    ASSERT_EQ(rows.size(), 40u);
    EXPECT_EQ(rows[20], kContext - 20);
  }
}

TEST(Methods, SinksStayWhereThePrefixHoldsNone) {
  const Scores scores = streaming_llm_scores(2, 1, 20, 1);
  const KeepSet kept = select_pairs(scores, 10, Allocation::kUniform);
  EXPECT_EQ(kept.at(0, 0), (std::vector<uint32_t>{0, 1, 2, 18, 19}));
}

// Noting something down changes no row, and it does not matter when it is done, in how many threads
// or whether layers have windows.
TEST(Methods, ObservingIsRepeatable) {
  for (const TinyModel& kind :
       {TinyModel{}, TinyModel{.architecture = "gemma3", .n_layer = 6, .window = 40}}) {
    const Model model = tiny(kind);
    Zipper later = tiny_zipper(model, Method::kKvzip);
    const KeepSet kept = later.select(Method::kRandom, {.ratio = 0.5}, Allocation::kGlobal);
    const auto before = later.copy(Method::kRandom, Allocation::kGlobal, kept).save();
    for (const Method method :
         {Method::kH2o, Method::kH2oMean, Method::kSnapKv, Method::kExpectedAttention}) {
      Zipper at_once = tiny_zipper(model, method);
      EXPECT_EQ(at_once.scores(method).values, later.scores(method).values);
      Zipper in_threads = tiny_zipper(tiny(kind, 3), method);
      EXPECT_EQ(in_threads.scores(method).values, later.scores(method).values);
      EXPECT_EQ(later.copy(Method::kRandom, Allocation::kGlobal, kept).save(), before);
    }
  }
}

TEST(Methods, PartialInputsScoreTheWholeContext) {
  const std::vector<Token> context = random_tokens(95, 256, 1);
  const RepeatPrompts prompts = {.first = {1, 2}, .later = {3}, .turn = {4}};
  const auto first = plan_reconstruction(prompts, context, 6, ReconInput::kFirst);
  ASSERT_EQ(first.size(), 2u);  // 10 tokens, 6 at once
  EXPECT_EQ(first[0].input.size(), 3u + 6);
  EXPECT_EQ(first[1].input.size(), 1u + 6 + 1 + 4);  // the cue is what was fed before
  const auto last = plan_reconstruction(prompts, context, 50, ReconInput::kLast);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].n_prompt, 1 + kCueTokens + 1);
  EXPECT_TRUE(std::equal(context.end() - 10, context.end(), last[0].input.end() - 10));
  const auto prompt = plan_reconstruction(prompts, context, 50, ReconInput::kPrompt);
  ASSERT_EQ(prompt.size(), 1u);
  EXPECT_EQ(prompt[0].input, (std::vector<Token>{1, 2, 4}));
  for (const auto& passes : {first, last, prompt}) {
    for (const ReconstructionPass& pass : passes) {
      EXPECT_EQ(pass.begin, 0);
      EXPECT_EQ(pass.end, 95);
    }
  }
}

TEST(Methods, StreamOrSayThatTheyCannot) {
  const Model model = tiny();
  for (const MethodInfo& info : zip_methods()) {
    if (needs_heads(info.method) || needs_unrotated_rows(info.method)) continue;
    const ZipOptions options = {.budget = {.ratio = 0.25},
                                .method = info.method,
                                .allocation = Allocation::kNative,
                                .schedule = Schedule::kStreaming,
                                .chunk_tokens = 70,
                                .self_check = false};
    try {
      StreamZipper zipper(model, tiny_plan(model, options), options);
      EXPECT_EQ(zipper.run().report().pairs_kept, 6 * kContext / 4) << info.name;
      EXPECT_TRUE(method_traits(info.method).streams) << info.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
      EXPECT_FALSE(method_traits(info.method).streams) << info.name;
      EXPECT_NE(std::string(error.what()).find(info.name), std::string::npos) << error.what();
    }
  }
}

TEST(Sigma, BlocksAreLowPassedAlone) {
  // Two blocks of 64 and a rest that is too short for a block of its own.
  constexpr int64_t kDim = 3;
  std::vector<float> values(160 * kDim);
  for (size_t at = 0; at < values.size(); ++at) {
    values[at] = std::sin(0.7f * static_cast<float>(at)) + (at / kDim == 100 ? 5.0f : 1.0f);
  }
  std::vector<float> found(160);
  block_sigma(values, kDim, 64, found);
  std::vector<float> expected(160);
  const auto part = [&](auto& list, size_t begin, size_t n) {
    return std::span(list).subspan(begin, n);
  };
  LowPass(64, 1).sigma(part(values, 0, 64 * kDim), kDim, part(expected, 0, 64));
  LowPass(96, 1).sigma(part(values, 64 * kDim, 96 * kDim), kDim, part(expected, 64, 96));
  EXPECT_EQ(found, expected);
  EXPECT_EQ(std::max_element(found.begin(), found.end()) - found.begin(), 100);
}

Model load_tiny(const TinyModel& tiny) {
  const std::string path = temp_path("sigma.gguf");
  write_tiny_model(tiny, path);
  return Model::load(path, {.n_threads = 2});
}

TEST(Sigma, RanksKeysOfEachHeadWithoutLatentAttention) {
  const ZipOptions options = {.method = Method::kSigma, .self_check = false};
  const std::vector<Token> tokens = random_tokens(200, 256, 3);
  const Model model = load_tiny({.architecture = "granitehybrid"});
  Zipper zipper(model, plan_zip(*model.state(), {}, tokens, options), options);
  zipper.prefill();
  const DenseCache& rows = zipper.full_rows().global;
  const KvShape& shape = rows.shape();
  ASSERT_EQ(shape.n_kv_head, 2);
  const Scores& scores = zipper.scores(Method::kSigma);
  for (int64_t head = 0; head < shape.n_layer * shape.n_kv_head; ++head) {
    const int64_t layer = head / 2;
    std::vector<float> keys(static_cast<size_t>(200 * shape.head_dim));
    for (int64_t row = 0; row < 200; ++row) {
      read_row(shape.row_type, rows.k_rows(layer, head % 2), row,
               std::span(keys).subspan(static_cast<size_t>(row * shape.head_dim),
                                       static_cast<size_t>(shape.head_dim)));
    }
    std::vector<float> expected(200);
    LowPass(200, 1).sigma(keys, shape.head_dim, expected);
    for (int64_t row = kSinkTokens; row < 200; ++row) {
      EXPECT_EQ(scores.head(layer, head % 2)[row], expected[static_cast<size_t>(row)]);
    }
  }
  const KeepSet kept = zipper.select(Method::kSigma, {.ratio = 0.1}, Allocation::kUniform);
  EXPECT_EQ(kept.pairs_kept(), 2 * 2 * 20);
  EXPECT_NE(kept.rows[0], kept.rows[1]) << "heads keep rows of their own";
}

TEST(Sigma, RanksUnrotatedRowsOnly) {
  const ZipOptions options = {.method = Method::kSigma, .self_check = false};
  const std::vector<Token> tokens = random_tokens(200, 256, 3);
  const Model model = load_tiny({.architecture = "kimi-linear"});
  for (const Method method : {Method::kSigma, Method::kSigmaContent, Method::kSigmaRow}) {
    Zipper zipper(model, plan_zip(*model.state(), {}, tokens, options), options);
    zipper.prefill();
    const KeepSet kept = zipper.select(method, {.ratio = 0.1}, Allocation::kUniform);
    EXPECT_EQ(kept.pairs_kept(), 2 * 20);
    for (const auto& rows : kept.rows) EXPECT_EQ(rows[3], 3u);  // the sinks
  }
  const auto expect_refused = [&](const TinyModel& tiny, Method method, const char* reason) {
    const Model refused = load_tiny(tiny);
    try {
      plan_zip(*refused.state(), {}, tokens, {.method = method, .self_check = false});
      ADD_FAILURE() << tiny.architecture;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kUnsupported);
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  };
  for (const char* other : {"kimi-linear-rope", "deepseek2", "llama"}) {
    expect_refused({.architecture = other}, Method::kSigma, "without rotation");
  }
  expect_refused({.architecture = "granitehybrid", .rotary = true}, Method::kSigma, "rotated rows");
  for (const Method method : {Method::kSigmaContent, Method::kSigmaRow}) {
    expect_refused({.architecture = "granitehybrid"}, method, "no latent rows");
  }
}

}  // namespace
}  // namespace ctxzip::test
