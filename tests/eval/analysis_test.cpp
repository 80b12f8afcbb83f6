#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "ctxzip/error.h"
#include "eval/analysis_page.h"
#include "support/engine_run.h"

namespace ctxzip::eval {
namespace {

// Four pairs of one head, of which two are a task's best.
TaskAttention task(const std::string& name, std::vector<float> weights, std::vector<uint8_t> best,
                   const std::string& question = "") {
  return {.name = name,
          .question = question,
          .answer = question.empty() ? "" : "A <b>.",
          .weights = {.n_layer = 1, .n_kv_head = 1, .n_context = 4, .values = std::move(weights)},
          .best = std::move(best)};
}

AnalysisResult made_up() {
  AnalysisResult result{.model_name = "m", .attention = {}, .views = {}, .refusals = {}};
  result.attention =
      AttentionAnalysis{.context_tokens = 4,
                        .chunk_tokens = 4,
                        .ratio = 0.5,
                        .tasks = {task("prefill", {0.9F, 0.8F, 0.7F, 0.1F}, {1, 1, 0, 0}),
                                  task("repeat", {0.1F, 0.15F, 0.6F, 0.95F}, {0, 0, 1, 1}),
                                  task("qa-1", {0, 0, 0.5F, 0.2F}, {0, 0, 1, 1}, "Who?"),
                                  task("qa-2", {0.4F, 0, 0, 0.9F}, {1, 0, 0, 1}, "When?"),
                                  task("summary", {0, 0, 0.01F, 0.02F}, {0, 0, 1, 1}, "Sum up.")},
                        .source = SourceShare{.all = 0.75, .kept = 1}};
  return result;
}

const ReportFile* find(const std::vector<ReportFile>& files, const std::string& name) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const ReportFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

TEST(AnalysisPage, JsonHoldsEveryFigure) {
  const Json json = to_json(made_up());
  EXPECT_EQ(json["pairs"], 4);
  EXPECT_EQ(json["sparsity"]["prefill"]["below_0.2"], 0.25);
  EXPECT_EQ(json["sparsity"]["repeat"]["below_0.2"], 0.5);
  EXPECT_EQ(json["sparsity"]["repeat"]["from_0.8"], 0.25);
  EXPECT_EQ(json["sparsity"]["repeat"]["shares"].size(), 20u);
  EXPECT_EQ(json["from_repeated_text"]["all"], 0.75);
  // Repeat and prefill against three answers each, the first answer against two.
  ASSERT_EQ(json["overlap"].size(), 8u);
  const Json& second = json["overlap"][1];
  EXPECT_EQ(second["x"], "repeat");
  EXPECT_EQ(second["y"], "qa-2");
  EXPECT_EQ(second["below_diagonal"], 0.75);
  EXPECT_EQ(second["n_important"], 2);
  EXPECT_EQ(second["important_below"], 0.5);
  EXPECT_EQ(second["important_kept"], 0.5);
  EXPECT_TRUE(json["overlap"][2]["important_kept"].is_null());  // the summary looks at nothing much
  EXPECT_FALSE(json.contains("refusals"));
}

TEST(AnalysisPage, DrawsWhatIsWantedAndOnePageOfIt) {
  AnalysisResult result = made_up();
  const auto files = analysis_files(result);
  for (const char* name : {"sparsity.svg", "map-prefill.png", "map-summary.png",
                           "overlap-repeat-qa-1.svg", "overlap-qa-1-qa-2.svg", "analysis.json"}) {
    EXPECT_NE(find(files, name), nullptr) << name;
  }
  EXPECT_EQ(find(files, "map-repeat.png")->content.substr(1, 3), "PNG");
  const std::string& page = find(files, "analysis.html")->content;
  EXPECT_NE(page.find("A &lt;b&gt;."), std::string::npos);
  EXPECT_NE(page.find("data:image/png;base64,"), std::string::npos);
  result.views = {.sparsity = true, .maps = false, .overlap = false};
  const auto fewer = analysis_files(result);
  EXPECT_EQ(fewer.size(), 3u);  // sparsity.svg, analysis.json, analysis.html
  result.attention.reset();
  result.refusals = RefusalRun{.ratio = 0.4, .records = {}};
  EXPECT_NE(find(analysis_files(result), "refusals.svg"), nullptr);
}

// A real model for the rest; they run in one process.
class AnalysisTest : public testing::Test {
 protected:
  void SetUp() override { CTXZIP_NEEDS_MODEL(test::kSmolLm2); }
  static Model model() { return Model::load(test::model_path(test::kSmolLm2)); }
};

constexpr const char* kText =
    "The lighthouse of Marrow Point was built in 1874 by Agnes Thorne. Its lamp burns whale oil "
    "and "
    "can be seen from nineteen miles away. The keeper, Jonas Pell, climbs 212 steps every evening.";

TEST_F(AnalysisTest, WeightsOfEveryTaskAreSharesAndRepeatingLooksAtLess) {
  std::vector<std::string> steps;
  AnalysisOptions options;
  options.questions = {"Who built the lighthouse?"};
  options.answer_tokens = 8;
  options.ratio = 0.4;
  const AttentionAnalysis found = analyse_attention(
      model(), kText, options, [&](std::string_view step) { steps.emplace_back(step); });
  EXPECT_EQ(steps, (std::vector<std::string>{"prefill", "repeat", "source", "qa-1", "summary"}));
  ASSERT_EQ(found.tasks.size(), 4u);
  const int64_t n_pairs = found.tasks[0].weights.pairs();
  EXPECT_EQ(n_pairs, 30 * 3 * found.context_tokens);
  for (const TaskAttention& task : found.tasks) {
    ASSERT_EQ(task.weights.pairs(), n_pairs) << task.name;
    for (const float weight : task.weights.values) {
      ASSERT_GE(weight, 0) << task.name;
      ASSERT_LE(weight, 1 + 1e-5) << task.name;
    }
    EXPECT_EQ(std::count(task.best.begin(), task.best.end(), 1), (n_pairs * 2 + 4) / 5);
  }
  EXPECT_NE(found.task("qa-1").answer, "");
  // In prefill the diagonal alone gives a good part of the pairs much weight.
  EXPECT_LT(share_below(found.task("prefill").weights.values, 0.2),
            share_below(found.task("repeat").weights.values, 0.2));
  ASSERT_TRUE(found.source);
  EXPECT_GT(found.source->all, 0.5);
  EXPECT_LE(found.source->all, 1);
}

TEST_F(AnalysisTest, TextsThatCannotBeScoredAreRefused) {
  const Model loaded = model();
  const auto error_of = [&](const std::string& text) {
    try {
      analyse_attention(loaded, text, {});
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kCancelled;
  };
  EXPECT_EQ(error_of("Too short."), ErrorKind::kUnsupported);
  std::string long_text;
  for (int n = 0; n < 9000; ++n) long_text += " word";
  EXPECT_EQ(error_of(long_text), ErrorKind::kTooLong);
}

}  // namespace
}  // namespace ctxzip::eval
