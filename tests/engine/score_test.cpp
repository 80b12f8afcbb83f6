// Scores against the reference implementation, and the sets that selection makes of them.
#include <gtest/gtest.h>

#include "engine/golden.h"
#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"

namespace ctxzip::test {
namespace {

class GoldenScores : public testing::TestWithParam<const char*> {};

TEST_P(GoldenScores, EqualReference) {
  const Golden golden = load_golden(std::string("tiny-") + GetParam() + "-kvzip.json");
  const Model model = Model::load(data_path("golden/" + golden.json["model"].get<std::string>()),
                                  {.n_threads = 2, .f32_rows = true});
  const Scores full = run_golden_passes(model, golden, ReconAttention::kFull);
  expect_close(golden_scores(golden.json["scores_full"]), full);
  const Scores reference = golden_scores(golden.json["scores_kvpress"]);
  expect_close(reference, full);
  for (const double ratio : {0.1, 0.3, 0.5, 0.9}) expect_same_choice(reference, full, ratio);
  expect_close(golden_scores(golden.json["scores_local"]),
               run_golden_passes(model, golden, ReconAttention::kLocal));
}

TEST_P(GoldenScores, CommittedKeepSet) {
  const Golden golden = load_golden(std::string("tiny-") + GetParam() + "-kvzip.json");
  const Scores reference = golden_scores(golden.json["scores_kvpress"]);
  const KeepSet expected = decode_bitmap(golden.json["kept_bitmap"], reference.n_layer,
                                         reference.n_kv_head, reference.n_context);
  EXPECT_EQ(expected, select_pairs(reference, golden.json["pairs_kept"], Allocation::kGlobal));
}

TEST_P(GoldenScores, LogitsOfTheKeptRows) {
  const Golden golden = load_golden(std::string("tiny-") + GetParam() + "-kvzip.json");
  const Model model = Model::load(data_path("golden/" + golden.json["model"].get<std::string>()),
                                  {.n_threads = 2, .f32_rows = true});
  PromptLayout layout;
  layout.prefix = golden.prefix;
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model, plan_zip(*model.state(), layout, golden.context, options), options);
  zipper.prefill();
  const KvShape shape = global_shape(*model.state());
  const KeepSet kept =
      decode_bitmap(golden.json["kept_bitmap"], shape.n_layer, shape.n_kv_head, 300);
  const Context context = zipper.copy(Method::kKvzip, Allocation::kGlobal, kept);
  SegmentTable past = segment_table(*model.state());
  past.add(context.state()->rows);
  TailRun run(model, past, context.state()->rows.n_positions());
  const auto question = golden.json["question"].get<std::vector<Token>>();
  const auto logits = run.feed(question, 512);
  const auto expected = golden.json["logits_question_kept"].get<std::vector<float>>();
  const std::span<const float> last(logits.end() - static_cast<std::ptrdiff_t>(expected.size()),
                                    logits.end());
  for (size_t id = 0; id < expected.size(); ++id) ASSERT_NEAR(last[id], expected[id], 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Tiny, GoldenScores, testing::Values("llama", "qwen2", "llama3", "qwen3"));

TEST(GoldenSmolLm2, KeepsWhatTheFloatReferenceKeeps) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const nlohmann::json golden = read_golden("smollm2-kept30.json");
  const Model model = Model::load(model_path(kSmolLm2));
  PromptLayout layout = model.state()->tokenizer.layout(std::nullopt, false);
  EXPECT_EQ(layout.prefix, golden["prefix"].get<std::vector<Token>>());
  const auto context = golden["context"].get<std::vector<Token>>();
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model, plan_zip(*model.state(), layout, context, options), options);
  zipper.prefill();
  const KeepSet found = zipper.select(Method::kKvzip, {.ratio = 0.3}, Allocation::kGlobal);
  const KeepSet expected =
      decode_bitmap(golden["kept_bitmap"], 30, 3, static_cast<int64_t>(context.size()));
  EXPECT_EQ(found.pairs_kept(), golden["pairs_kept"].get<int64_t>());
  const double share = overlap(expected, found);
  std::printf("overlap of the kept 30%% with the float32 reference: %.2f%%\n", 100 * share);
  EXPECT_GE(share, 0.95);
}

}  // namespace
}  // namespace ctxzip::test
