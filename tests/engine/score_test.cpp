// Scores against the reference implementation, and the sets that selection makes of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/golden.h"
#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"

namespace ctxzip::test {
namespace {

// Single-precision sums in another order; the golden values are double precision.
constexpr double kMaxRelativeDifference = 1e-3;
// Rows this close to the threshold may fall on either side of it.
constexpr double kNearThreshold = 2e-3;

struct Golden {
  nlohmann::json json;
  std::vector<Token> prefix, context;
};

Golden load_golden(const std::string& architecture) {
  Golden golden{
      .json = read_golden("tiny-" + architecture + "-kvzip.json"), .prefix = {}, .context = {}};
  golden.prefix = golden.json["prefix"].get<std::vector<Token>>();
  golden.context = golden.json["context"].get<std::vector<Token>>();
  return golden;
}

Scores golden_scores(const nlohmann::json& json) {
  Scores scores{.n_layer = static_cast<int64_t>(json.size()),
                .n_kv_head = static_cast<int64_t>(json[0].size()),
                .n_context = static_cast<int64_t>(json[0][0].size()),
                .values = {}};
  for (const auto& layer : json) {
    for (const auto& head : layer) {
      for (const auto& value : head) scores.values.push_back(value.get<float>());
    }
  }
  return scores;
}

// Runs the golden file's own passes, so that its prompts (ids without a tokenizer) are used.
Scores run_golden_passes(const Model& model, const Golden& golden, ReconAttention attention) {
  const detail::ModelState& state = *model.state();
  const KvShape shape = global_shape(state);
  const int64_t n_prefix = static_cast<int64_t>(golden.prefix.size());
  const int64_t n_context = static_cast<int64_t>(golden.context.size());
  DenseCache full(shape, n_prefix + n_context);
  GraphRunner runner(state);
  const SegmentTable nothing = segment_table(state);
  {
    std::vector<Token> tokens = golden.prefix;
    tokens.insert(tokens.end(), golden.context.begin(), golden.context.end());
    CacheAttention prefill(attention_setup(state), nothing, 0, nullptr);
    const AppendTarget target = {.global = {&full, 0}};
    prefill.set_targets({&target, 1});
    runner.run({tokens, 0, {}}, prefill, 0, {});
    full.extend(static_cast<int64_t>(tokens.size()));
  }
  Scores scores = start_scores(shape.n_layer, shape.n_kv_head, n_context);
  DenseCache own(one_layer_shape(state), 4096);
  const FrozenLayers no_window;
  const int64_t chunk = golden.json["chunk"];
  int64_t begin = 0;
  for (const auto& input : golden.json["inputs"]) {
    ReconstructionPass pass{
        .begin = begin, .end = std::min(n_context, begin + chunk), .input = input, .n_prompt = 0};
    const PassAttention over =
        pass_attention({state.hp.layers, full, no_window, n_prefix}, pass, attention, scores);
    CacheAttention seam(attention_setup(state), over.past, over.own_place, &over.sink);
    const AppendTarget target = {.global = {&own, 0}, .one_layer = true};
    seam.set_targets({&target, 1});
    runner.run({pass.input, n_prefix + n_context, {}}, seam, 0, {});
    begin = pass.end;
  }
  finish_scores(scores);
  return scores;
}

void expect_close(const Scores& expected, const Scores& found) {
  ASSERT_EQ(expected.values.size(), found.values.size());
  double worst = 0;
  for (size_t pair = 0; pair < expected.values.size(); ++pair) {
    const double difference = std::abs(expected.values[pair] - found.values[pair]);
    worst =
        std::max(worst, difference / std::max(1e-6, static_cast<double>(expected.values[pair])));
  }
  std::printf("largest relative difference %.2g\n", worst);
  EXPECT_LE(worst, kMaxRelativeDifference);
}

// Equal apart from pairs whose expected score is near the threshold.
void expect_same_choice(const Scores& expected, const Scores& found, double ratio) {
  const auto n_keep =
      static_cast<int64_t>(std::ceil(ratio * static_cast<double>(expected.pairs())));
  std::vector<float> sorted = expected.values;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double threshold = sorted[static_cast<size_t>(n_keep - 1)];
  const KeepSet a = select_pairs(expected, n_keep, Allocation::kGlobal);
  const KeepSet b = select_pairs(found, n_keep, Allocation::kGlobal);
  EXPECT_EQ(a.pairs_kept(), b.pairs_kept());
  for (size_t head = 0; head < a.rows.size(); ++head) {
    std::vector<uint32_t> only_one;
    std::set_symmetric_difference(a.rows[head].begin(), a.rows[head].end(), b.rows[head].begin(),
                                  b.rows[head].end(), std::back_inserter(only_one));
    for (const uint32_t row : only_one) {
      const double score = expected.values[head * static_cast<size_t>(expected.n_context) + row];
      EXPECT_NEAR(score, threshold, kNearThreshold) << "head " << head << " row " << row;
    }
  }
}

class GoldenScores : public testing::TestWithParam<const char*> {};

TEST_P(GoldenScores, EqualReference) {
  const Golden golden = load_golden(GetParam());
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
  const Golden golden = load_golden(GetParam());
  const Scores reference = golden_scores(golden.json["scores_kvpress"]);
  const KeepSet expected = decode_bitmap(golden.json["kept_bitmap"], reference.n_layer,
                                         reference.n_kv_head, reference.n_context);
  EXPECT_EQ(expected, select_pairs(reference, golden.json["pairs_kept"], Allocation::kGlobal));
}

TEST_P(GoldenScores, LogitsOfTheKeptRows) {
  const Golden golden = load_golden(GetParam());
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
