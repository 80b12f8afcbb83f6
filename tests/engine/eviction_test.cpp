// Nothing changes at ratio 1.0, and evicting equals masking.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/logits.h"
#include "support/oracle_attention.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr double kMaxMaskedDelta = 1e-4;  // f32 sums in another order

Model tiny(const char* architecture, bool f32_rows = true, ggml_type type = GGML_TYPE_F32) {
  const std::string path = temp_path("eviction.gguf");
  TinyModel tiny = {.architecture = architecture, .type = type};
  if (tiny.architecture == "gemma3") {
    tiny.n_layer = 6;
    tiny.window = 24;  // shorter than the questions, so that it moves past all of the context
  }
  write_tiny_model(tiny, path);
  return Model::load(path, {.n_threads = 2, .f32_rows = f32_rows});
}

Zipper prefilled(const Model& model, int64_t n_prefix, int64_t n_context) {
  PromptLayout layout;
  layout.prefix = random_tokens(n_prefix, model.info().n_vocab, 3);
  const ZipOptions options = {.self_check = false};
  Zipper zipper(
      model,
      plan_zip(*model.state(), layout, random_tokens(n_context, model.info().n_vocab, 5), options),
      options);
  zipper.prefill();
  return zipper;
}

std::vector<float> logits_after(const Model& model, const SegmentTable& past, int64_t first,
                                std::span<const Token> tokens) {
  TailRun run(model, past, first, 1024);
  std::vector<float> logits = run.feed(tokens.first(tokens.size() / 2), 512);
  const auto decoded = run.feed(tokens.subspan(tokens.size() / 2), 1);
  logits.insert(logits.end(), decoded.begin(), decoded.end());
  return logits;
}

class Ratio1 : public testing::TestWithParam<std::tuple<const char*, int64_t, bool>> {};

TEST_P(Ratio1, BitIdenticalToTheFullCache) {
  const auto [architecture, n_context, f32_rows] = GetParam();
  const Model model = tiny(architecture, f32_rows);
  Zipper zipper = prefilled(model, 4, n_context);
  const KvShape shape = global_shape(*model.state());
  const auto question = random_tokens(40, model.info().n_vocab, 11);
  SegmentTable full = segment_table(*model.state());
  full.add(zipper.full_rows().global, 0, 4 + n_context);
  full.add_window(zipper.full_rows().window);
  const auto expected = logits_after(model, full, 4 + n_context, question);

  const KeepSet all = keep_all(shape.n_layer, shape.n_kv_head, n_context);
  const Context context = zipper.copy(Method::kKvzip, Allocation::kGlobal, all);
  SegmentTable zipped = segment_table(*model.state());
  zipped.add(context.state()->rows);
  EXPECT_EQ(logits_after(model, zipped, 4 + n_context, question), expected);

  // Also after a round trip through a file.
  const Context opened = Context::open(model, context.save());
  SegmentTable from_file = segment_table(*model.state());
  from_file.add(opened.state()->rows);
  EXPECT_EQ(logits_after(model, from_file, 4 + n_context, question), expected);
}

INSTANTIATE_TEST_SUITE_P(Contexts, Ratio1,
                         testing::Combine(testing::Values("llama", "gemma3"),
                                          testing::Values(1, 20, 2000), testing::Bool()));
INSTANTIATE_TEST_SUITE_P(OtherRows, Ratio1,
                         testing::Combine(testing::Values("deepseek2", "kimi-linear",
                                                          "granitehybrid"),
                                          testing::Values(1, 600), testing::Bool()));

// Greedy tokens from a session's state; stops where the two best are too close to call.
void expect_same_greedy_text(const Model& model, TailRun& one, TailRun& other,
                             std::vector<float> logits_one, std::vector<float> logits_other,
                             int n_tokens) {
  const size_t width = static_cast<size_t>(model.info().n_vocab);
  for (int step = 0; step < n_tokens; ++step) {
    const std::span<const float> a(logits_one.end() - static_cast<std::ptrdiff_t>(width),
                                   logits_one.end());
    const std::span<const float> b(logits_other.end() - static_cast<std::ptrdiff_t>(width),
                                   logits_other.end());
    double delta = 0;
    for (size_t id = 0; id < width; ++id)
      delta = std::max(delta, std::abs(static_cast<double>(a[id]) - b[id]));
    std::vector<float> sorted(a.begin(), a.end());
    std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
    const double margin = *std::max_element(a.begin(), a.end()) - sorted[1];
    const auto next = static_cast<Token>(std::max_element(a.begin(), a.end()) - a.begin());
    const auto other_next = static_cast<Token>(std::max_element(b.begin(), b.end()) - b.begin());
    if (margin < 2 * delta) return;
    ASSERT_EQ(next, other_next) << "step " << step;
    logits_one = one.feed({&next, 1}, 1);
    logits_other = other.feed({&next, 1}, 1);
  }
}

void expect_one_prompt_equal(const Model& model, int64_t n_context, int n_tokens) {
  Zipper zipper = prefilled(model, 4, n_context);
  const KvShape shape = global_shape(*model.state());
  const Context context = zipper.copy(Method::kKvzip, Allocation::kGlobal,
                                      keep_all(shape.n_layer, shape.n_kv_head, n_context));
  SegmentTable zipped = segment_table(*model.state());
  zipped.add(context.state()->rows);
  TailRun session(model, zipped, 4 + n_context, 1024);
  const auto question = random_tokens(12, model.info().n_vocab, 11);
  std::vector<Token> prompt = zipper.plan().layout.prefix;
  prompt.insert(prompt.end(), zipper.plan().context.begin(), zipper.plan().context.end());
  prompt.insert(prompt.end(), question.begin(), question.end());
  const SegmentTable nothing = segment_table(*model.state());
  TailRun whole(model, nothing, 0, 4096);
  auto whole_logits = whole.feed(prompt, 512);
  expect_same_greedy_text(model, session, whole, session.feed(question, 512),
                          std::move(whole_logits), n_tokens);
}

TEST(Ratio1Text, EqualsOnePrompt) {
  for (const char* architecture : {"qwen2", "gemma3"}) {
    for (const int64_t n_context : {1, 20, 2000})
      expect_one_prompt_equal(tiny(architecture), n_context, 48);
  }
  for (const char* architecture : {"deepseek2", "kimi-linear", "granitehybrid"}) {
    for (const int64_t n_context : {1, 600})
      expect_one_prompt_equal(tiny(architecture), n_context, 24);
  }
}

TEST(Ratio1Text, EqualsOnePromptOnSmolLm2) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  for (const int64_t n_context : {20, 300})
    expect_one_prompt_equal(Model::load(model_path(kSmolLm2)), n_context, 16);
}

// Heads with very different counts: none, one row, the last row, blocks' edges, all.
KeepSet ragged(int64_t n_layer, int64_t n_kv_head, int64_t n_context) {
  KeepSet kept{.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .rows = {}};
  const auto first = [](int64_t n) {
    std::vector<uint32_t> rows(static_cast<size_t>(n));
    std::iota(rows.begin(), rows.end(), 0u);
    return rows;
  };
  const std::vector<std::vector<uint32_t>> kinds = {{},
                                                    {7},
                                                    {static_cast<uint32_t>(n_context - 1)},
                                                    first(n_context),
                                                    first(512),
                                                    first(513),
                                                    {0, 511, 512, 513}};
  for (int64_t head = 0; head < n_layer * n_kv_head; ++head)
    kept.rows.push_back(kinds[static_cast<size_t>(head) % kinds.size()]);
  return kept;
}

class Masked : public testing::TestWithParam<std::tuple<const char*, int64_t>> {};

TEST_P(Masked, EqualsEvicted) {
  const auto [architecture, n_prefix] = GetParam();
  const Model model = tiny(architecture);
  const int64_t n_context = 700;
  Zipper zipper = prefilled(model, n_prefix, n_context);
  const KvShape shape = global_shape(*model.state());
  const auto question = random_tokens(33, model.info().n_vocab, 11);
  const KeepSet random = select_pairs(zipper.scores(Method::kRandom), 900, Allocation::kGlobal);
  for (const KeepSet& kept : {ragged(shape.n_layer, shape.n_kv_head, n_context), random}) {
    OracleAttention oracle(zipper.full_rows(), &kept, attention_setup(*model.state()).shape);
    GraphRunner runner(*model.state());
    std::vector<int32_t> rows(question.size());
    std::iota(rows.begin(), rows.end(), 0);
    const auto masked = runner.run({question, n_prefix + n_context, rows}, oracle, 0, {});
    const std::vector<float> expected(masked.begin(), masked.end());

    const Context context = zipper.copy(Method::kRandom, Allocation::kGlobal, kept);
    SegmentTable evicted = segment_table(*model.state());
    evicted.add(context.state()->rows);
    SegmentTable listed = segment_table(*model.state());
    listed.add(zipper.full_rows().global, n_prefix, kept);
    listed.add_window(zipper.full_rows().window);
    for (const SegmentTable* past : {&evicted, &listed}) {
      for (const int64_t batch : {int64_t{512}, int64_t{1}, int64_t{7}}) {
        TailRun run(model, *past, n_prefix + n_context, 1024);
        const auto found = run.feed(question, batch);
        double worst = 0;
        for (size_t at = 0; at < found.size(); ++at)
          worst = std::max(worst, std::abs(static_cast<double>(found[at]) - expected[at]));
        const bool gelu = std::string(architecture) == "gemma3";
        EXPECT_LE(worst, gelu ? kGeluLogitDelta : kMaxMaskedDelta) << "batch " << batch;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Masked,
                         testing::Combine(testing::Values("llama", "qwen2", "qwen3", "gemma3"),
                                          testing::Values(0, 5)));
INSTANTIATE_TEST_SUITE_P(OtherRows, Masked,
                         testing::Combine(testing::Values("deepseek2", "kimi-linear",
                                                          "granitehybrid"),
                                          testing::Values(5)));

TEST(MaskedQuantised, EqualsEvicted) {
  const Model model = tiny("llama", false, GGML_TYPE_Q8_0);
  Zipper zipper = prefilled(model, 5, 700);
  const KeepSet kept = select_pairs(zipper.scores(Method::kRandom), 1200, Allocation::kGlobal);
  const Context context = zipper.copy(Method::kRandom, Allocation::kGlobal, kept);
  SegmentTable evicted = segment_table(*model.state());
  evicted.add(context.state()->rows);
  SegmentTable listed = segment_table(*model.state());
  listed.add(zipper.full_rows().global, 5, kept);
  const auto question = random_tokens(33, model.info().n_vocab, 11);
  TailRun a(model, evicted, 705, 1024);
  TailRun b(model, listed, 705, 1024);
  EXPECT_LE(
      compare_logits(b.feed(question, 512), a.feed(question, 512), model.info().n_vocab).mean_kl,
      1e-4);
}

TEST(Positions, NextTokenComesAtTheOriginalLength) {
  const Model model = tiny("llama");
  Zipper zipper = prefilled(model, 3, 100);
  const KeepSet kept = zipper.select(Method::kRandom, {.ratio = 0.1}, Allocation::kGlobal);
  EXPECT_EQ(zipper.take(Method::kRandom, Allocation::kGlobal, kept).state()->rows.n_positions(),
            103);
}

}  // namespace
}  // namespace ctxzip::test
