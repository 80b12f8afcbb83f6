// Head scores: measured once, kept as JSON, used by later zips.
#include "ctxzip/heads.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <iterator>

#include "ctxzip/error.h"
#include "engine/zipper.h"
#include "support/engine_run.h"

namespace ctxzip::test {
namespace {

HeadScores sample_heads() {
  return {.model_name = "a model",
          .model_fingerprint = "0123456789abcdef",
          .layers = {1, 3},
          .n_kv_head = 2,
          .n_samples = 1,
          .sample_tokens = 500,
          .values = {0.1f, 0.25f, 0.9f, 1}};
}

std::string message_of(const std::function<void()>& action, ErrorKind kind) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(HeadScores, SurviveTheirFile) {
  const HeadScores heads = heads_from_json(heads_to_json(sample_heads()));
  EXPECT_EQ(heads.model_fingerprint, "0123456789abcdef");
  EXPECT_EQ(heads.layers, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(heads.values, sample_heads().values);
  EXPECT_EQ(heads.sample_tokens, 500);
}

TEST(HeadScores, BadFilesAreRefused) {
  HeadScores uneven = sample_heads();
  uneven.layers.push_back(5);
  const std::string good = heads_to_json(sample_heads());
  std::string other_version = good;
  other_version.replace(other_version.find("\"format_version\":1"), 18, "\"format_version\":9");
  std::string text_score = good;
  text_score.replace(text_score.find("0.25"), 4, "\"no\"");
  std::string short_layer = good;
  short_layer.replace(short_layer.find(",0.25"), 5, "");
  for (const std::string& bad : {std::string(), std::string("{}"), good.substr(0, 40),
                                 other_version, text_score, short_layer}) {
    message_of([&] { heads_from_json(bad); }, ErrorKind::kCorruptFile);
  }
}

TEST(HeadScores, OfAnotherModelOrMissingAreRefused) {
  const Model model = Model::load(data_path("golden/tiny-llama.gguf"));
  const auto plan = [&](const ZipOptions& options) {
    plan_zip(*model.state(), PromptLayout{}, random_tokens(100, 256, 1), options);
  };
  ZipOptions options = {.method = Method::kHeadsDuo};
  EXPECT_NE(message_of([&] { plan(options); }, ErrorKind::kInvalidArgument).find("--heads"),
            std::string::npos);
  options.heads = std::make_shared<const HeadScores>(sample_heads());
  EXPECT_NE(message_of([&] { plan(options); }, ErrorKind::kMismatch).find("0123456789abcdef"),
            std::string::npos);
  HeadScores misshapen = sample_heads();
  misshapen.model_fingerprint = model.info().fingerprint;
  options.heads = std::make_shared<const HeadScores>(misshapen);
  message_of([&] { plan(options); }, ErrorKind::kMismatch);
}

TEST(HeadScores, SmolLm2ZipsWithoutAScoringPass) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const Model model = Model::load(model_path(kSmolLm2));
  std::ifstream file(data_path("sample.txt"));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const std::vector<std::string> texts = {text.substr(0, 1200), text.substr(1200, 1800)};
  const HeadMeasurement found = measure_heads(model, texts);
  ASSERT_EQ(found.scores.values.size(), 90u);
  for (const float score : found.scores.values) {
    EXPECT_GT(score, 0);
    EXPECT_LE(score, 1);
  }
  ASSERT_EQ(found.trials.size(), 2u);
  for (const HeadTrial& trial : found.trials) {
    ASSERT_FALSE(trial.losses.empty());
    EXPECT_LT(trial.losses.front().delta_nll, 0.2) << "at 90%";
  }
  ZipOptions options = {.budget = {.ratio = 0.6},
                        .method = Method::kHeadsDuo,
                        .heads = std::make_shared<const HeadScores>(found.scores),
                        .self_check = false};
  const Context context = zip(model, texts[0], options);
  const ZipReport& report = context.report();
  EXPECT_EQ(report.method, "heads-duo");
  EXPECT_EQ(report.score_s, 0);
  EXPECT_EQ(report.pairs_kept, (report.pairs_total * 6 + 9) / 10);
}

}  // namespace
}  // namespace ctxzip::test
