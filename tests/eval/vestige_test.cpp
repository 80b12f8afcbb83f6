// The needle language, selections of rows and statistics of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "ctxzip/error.h"
#include "eval/experiment.h"
#include "eval/needle_text.h"
#include "eval/report.h"
#include "eval/row_selection.h"
#include "eval/row_statistics.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::eval {
namespace {

NeedleText text_of(const NeedleTextOptions& options, uint64_t seed = 1) {
  Draw draw(seed);
  return make_needle_text(options, draw);
}

TEST(NeedleText, NeedlesLieWhereTheySay) {
  const NeedleTextOptions options = {.n_tokens = 2048, .block_rows = 512};
  const NeedleText text = text_of(options);
  ASSERT_EQ(text.tokens.size(), 2048u);
  ASSERT_EQ(text.needles.size(), 8u);
  std::set<Token> keys;
  std::set<std::string> places;
  for (const Needle& needle : text.needles) {
    const auto at = text.tokens.begin() + needle.first;
    EXPECT_EQ(*at, kSetMark);
    EXPECT_EQ(needle.query[0], kGetMark);
    EXPECT_TRUE(std::equal(at + 1, at + kItemTokens, needle.query.begin() + 1));
    keys.insert(needle.query[1]);
    places.insert(needle.place);
    const int64_t in_block = needle.first % 512;
    if (needle.place == "block start") {
      EXPECT_LE(in_block, 12);
    } else if (needle.place == "block end") {
      EXPECT_GE(in_block, 512 - 16);
    }
  }
  EXPECT_EQ(keys.size(), 8u);  // without replacement
  EXPECT_EQ(places, (std::set<std::string>{"anywhere", "block end", "block start", "pair"}));
  EXPECT_EQ(std::count(text.tokens.begin(), text.tokens.end(), kSetMark), 8);
  EXPECT_EQ(std::count(text.tokens.begin(), text.tokens.end(), kNoteMark), 8);
}

TEST(NeedleText, WordsFollowTheTable) {
  const NeedleText text = text_of({.n_tokens = 20000});
  int64_t n_words = 0;
  int64_t n_likeliest = 0;
  int64_t n_known = 0;
  for (size_t at = 1; at < text.tokens.size(); ++at) {
    const Token before = text.tokens[at - 1];
    const Token word = text.tokens[at];
    if (before < kFirstWord || word < kFirstWord) continue;
    const auto known = successors(before);
    ++n_words;
    n_likeliest += word == known[0] ? 1 : 0;
    n_known += std::find(known.begin(), known.end(), word) != known.end() ? 1 : 0;
  }
  const auto share = [&](int64_t n) {
    return static_cast<double>(n) / static_cast<double>(n_words);
  };
  EXPECT_NEAR(share(n_known), 0.9 + 0.1 * 8 / 252, 0.01);
  EXPECT_NEAR(share(n_likeliest), 0.9 * 840 / 2283 + 0.1 / 252, 0.015);
}

TEST(NeedleText, SeedsDecideAndRoomIsChecked) {
  EXPECT_EQ(text_of({}, 3).tokens, text_of({}, 3).tokens);
  EXPECT_NE(text_of({}, 3).tokens, text_of({}, 4).tokens);
  EXPECT_THROW(text_of({.n_tokens = 64, .n_needles = 8, .n_distractors = 16}), Error);
  EXPECT_THROW(text_of({.n_needles = 200, .n_distractors = 100}), Error);
}

TEST(RowSelection, Names) {
  ASSERT_TRUE(find_selection("sigma-12"));
  EXPECT_EQ(find_selection("sigma-12")->principal, 12);
  EXPECT_EQ(find_selection("sigma-12")->scores, Method::kSigma);
  EXPECT_TRUE(find_selection("h2o-recent")->half_recent);
  for (const char* name : {"", "sigma-", "sigma-0", "sigma-x", "sigma-4x", "full", "sigmas"}) {
    EXPECT_FALSE(find_selection(name)) << name;
  }
}

// One head, rows (content 8 | branch 8) of which only the first value of each part is used.
class RowStatistics : public testing::Test {
 protected:
  static constexpr int64_t kDim = 16;
  void add_row(float content, float branch) { add(layer_.rows, content, branch); }
  void add_query(float content, float branch) { add(layer_.queries, content, branch); }
  QuerySet set(int64_t n_rows) const { return {shape_, layer_, at_, n_rows}; }

  MlaShape shape_ = {.latent = 8, .branch = 8, .n_head = 1};
  LayerCapture layer_;
  std::vector<int64_t> at_;

 private:
  static void add(std::vector<float>& to, float content, float branch) {
    to.resize(to.size() + kDim);
    to[to.size() - kDim] = content;
    to[to.size() - kDim + 8] = branch;
  }
};

TEST_F(RowStatistics, PartsThatMakeRowsWin) {
  add_row(1, 0);
  add_row(0, 3);
  add_row(2, 0);
  add_query(1, 1);   // scores 1, 3, 2: row 1, for its branch
  add_query(2, 1);   // scores 2, 3, 4: row 2, for its content
  add_query(-1, 1);  // scores -1, 3, -2: row 1, for either part (content: 0 is the largest)
  at_ = {0, 1, 2};
  EXPECT_EQ(same_best_row(set(3), 8, 16).hits, 2);
  EXPECT_EQ(same_best_row(set(3), 0, 8).hits, 2);
  EXPECT_EQ(same_best_row(set(3), 0, 16).hits, 3);
  EXPECT_EQ(same_best_row(set(3), 0, 8).n, 3);
}

TEST_F(RowStatistics, WinnersAreCausal) {
  for (const float row : {1.0f, 3.0f, 2.0f, 5.0f}) add_row(row, 0);
  for (int query = 0; query < 3; ++query) add_query(1, 0);
  add_query(-1, 0);
  // Queries 0..2 see rows up to their own: rows 0, 1, 1 win; the last one wants the smallest: 0.
  const HitCount count = winning_rows(shape_, layer_, 4);
  EXPECT_EQ(count.hits, 2);
  EXPECT_EQ(count.n, 4);
}

TEST_F(RowStatistics, PagesAreFoundByTheirSpheres) {
  // Three pages: rows of 1; one row of 64 among zeros (mean 2); rows of 3.
  for (int64_t row = 0; row < kPageRows; ++row) add_row(1, 0);
  for (int64_t row = 0; row < kPageRows; ++row) add_row(row == 5 ? 64.0f : 0.0f, 0);
  for (int64_t row = 0; row < kPageRows; ++row) add_row(3, 0);
  add_query(1, 0);
  at_ = {0};
  // Mean distances in page 1: (31 x 2 + 62) / 32 = 3.9, so it scores 5.9, before 3.
  EXPECT_EQ(pages_found(set(3 * kPageRows), PageRadius::kMean, 1).hits, 1);
  EXPECT_EQ(pages_found(set(3 * kPageRows), PageRadius::kLargest, 1).hits, 1);
  // A row of 8: page 1 scores 0.25 + 0.48 by the mean distance, 8 by the largest.
  layer_.rows[static_cast<size_t>((kPageRows + 5) * kDim)] = 8;
  EXPECT_EQ(pages_found(set(3 * kPageRows), PageRadius::kMean, 1).hits, 0);
  EXPECT_EQ(pages_found(set(3 * kPageRows), PageRadius::kMean, 3).hits, 1);
  EXPECT_EQ(pages_found(set(3 * kPageRows), PageRadius::kLargest, 1).hits, 1);
}

// On the trained models, a short text each.
class VestigeExperiment : public testing::Test {
 protected:
  static std::string model_file(const std::string& name) {
    return test::data_path("../../models/vestige/vestige-" + name + ".gguf");
  }
  static const Experiment& find(std::string_view name) {
    const auto all = experiments();
    return *std::find_if(all.begin(), all.end(),
                         [&](const Experiment& one) { return one.name == name; });
  }
  static std::vector<VariantSummary> run(const Model& model, std::string_view name,
                                         const ExperimentOptions& options) {
    const ExperimentRun run = prepare_experiment(model, find(name), options);
    const std::string path = test::temp_path(std::string(name) + ".jsonl");
    std::filesystem::remove(path);
    RunLog log(path, run.header, run.plan, run.experiment.metrics);
    execute_experiment(model, run, log, nullptr, [](int64_t) {});
    EXPECT_EQ(read_run(path).n_contexts, options.n_contexts);  // what `ctxzip report` reads
    return summarise(log.records(), run.experiment.metrics, 0);
  }
};

TEST_F(VestigeExperiment, NeedlesArePairedWithTheFullCache) {
  const Model model = Model::load(model_file("a1"), {.n_threads = 1});
  const auto variants = run(model, "vestige-needle",
                            {.methods = {"full", "sigma", "streaming-llm", "h2o-recent", "sigma-4"},
                             .ratios = {0.125, 1},
                             .length = 1024,
                             .n_contexts = 2,
                             .block_rows = 256});
  ASSERT_EQ(variants.size(), 9u);
  const auto mean = [](const VariantSummary& variant, size_t metric) {
    return variant.metrics[metric].mean;
  };
  EXPECT_EQ(mean(variants[0], 0), 1);  // intact
  EXPECT_EQ(mean(variants[0], 2), 0);  // delta_nll
  EXPECT_EQ(variants[0].n_questions, 16);
  EXPECT_GE(mean(variants[1], 0), 0.9);
  EXPECT_LE(mean(variants[3], 0), 0.4);
  // 128 rows of 1,024 and four sinks in each of two layers.
  EXPECT_EQ(variants[1].kv_bytes, 2 * (128 + 4) * 80 * 2);
  for (const size_t all : {2u, 4u, 6u, 8u}) EXPECT_NEAR(mean(variants[all], 2), 0, 1e-3);
}

TEST_F(VestigeExperiment, RotatedRowsAreAControl) {
  const Model model = Model::load(model_file("b1"), {.n_threads = 1});
  const auto variants =
      run(model, "vestige-needle",
          {.methods = {"full", "sigma"}, .ratios = {0.125}, .length = 512, .n_contexts = 1});
  EXPECT_EQ(variants.size(), 2u);
}

TEST_F(VestigeExperiment, KeysOfSeveralHeadsAreRankedEachForItself) {
  for (const bool rotary : {false, true}) {  // rotated ones are the control
    const std::string path = test::temp_path("keys.gguf");
    test::write_tiny_model(
        {.architecture = "granitehybrid", .n_vocab = 256, .n_expert = 0, .rotary = rotary}, path);
    const Model model = Model::load(path, {.n_threads = 1});
    const auto variants = run(model, "vestige-needle",
                              {.methods = {"full", "sigma", "sigma-4", "h2o", "streaming-llm"},
                               .ratios = {0.125, 1},
                               .length = 512,
                               .n_contexts = 1});
    ASSERT_EQ(variants.size(), 9u);
    const Hyperparameters& hp = model.state()->hp;
    const int64_t n_head = hp.layers.n_global() * hp.n_kv_head;
    ASSERT_GT(hp.n_kv_head, 1);
    // Keys and values of 64 rows of 512 and four sinks in each head.
    EXPECT_EQ(variants[1].kv_bytes, n_head * (64 + 4) * 2 * hp.head_dim * 2);
    EXPECT_NE(variants[1].metrics[3].mean, variants[3].metrics[3].mean);
    for (const size_t all : {2u, 4u, 6u, 8u}) EXPECT_NEAR(variants[all].metrics[2].mean, 0, 1e-3);
    for (const char* absent : {"sigma-row", "sigma-content", "sigma-1000"}) {
      EXPECT_THROW(run(model, "vestige-needle", {.methods = {absent}, .length = 512}), Error);
    }
    EXPECT_THROW(prepare_experiment(model, find("vestige-recall"), {}), Error);
  }
}

TEST_F(VestigeExperiment, RecallSeesWhatEvictionLost) {
  const Model model = Model::load(model_file("a1"), {.n_threads = 1});
  const auto variants = run(model, "vestige-recall",
                            {.methods = {"evicted", "recall-sound"},
                             .ratios = {0.03125},
                             .length = 1024,
                             .n_contexts = 1,
                             .block_rows = 256});
  ASSERT_EQ(variants.size(), 2u);
  const auto& evicted = variants[0].metrics;
  const auto& sound = variants[1].metrics;
  EXPECT_EQ(evicted[2].mean, 0);              // recalled
  EXPECT_EQ(evicted[1].mean, sound[1].mean);  // hard
  EXPECT_EQ(sound[2].mean, sound[1].mean);    // all of them
  EXPECT_EQ(sound[0].mean, 1);                // seen
  EXPECT_LE(sound[6].mean, evicted[6].mean);  // missed mass
  EXPECT_LT(evicted[5].mean, sound[5].mean);  // read
}

TEST_F(VestigeExperiment, NeedlesThroughTheGraph) {
  const Model model = Model::load(model_file("a1"), {.n_threads = 1});
  const auto variants =
      run(model, "vestige-stream",
          {.methods = {"full", "evicted", "recall-sound", "recent", "evicted-streamed"},
           .ratios = {0.0078125},
           .length = 1024,
           .n_contexts = 1,
           .block_rows = 256});
  ASSERT_EQ(variants.size(), 5u);
  const auto mean = [&](size_t variant, size_t metric) {
    return variants[variant].metrics[metric].mean;
  };
  EXPECT_EQ(mean(0, 0), 1);  // intact
  EXPECT_EQ(mean(0, 4), 1);  // attended
  EXPECT_LT(mean(1, 4), 1);
  EXPECT_EQ(mean(1, 5), 0);  // rows fetched beside the kept ones
  // Sound mode leaves out next to nothing: what the full cache finds it finds.
  EXPECT_NEAR(mean(2, 2), 0, 0.05);
  EXPECT_EQ(mean(2, 1), mean(0, 1));
  EXPECT_LT(mean(3, 4), 0.5);  // the newest 8 rows hold few needles
  EXPECT_GT(mean(3, 2), mean(2, 2));
  EXPECT_NE(mean(4, 3), mean(1, 3));
}

TEST_F(VestigeExperiment, ContinuationsArePairedWithTheFullCache) {
  const Model model = Model::load(model_file("a1"), {.n_threads = 1});
  const auto variants = run(model, "vestige-continuation",
                            {.methods = {"full", "recall-sound"},
                             .ratios = {0.125},
                             .length = 512,
                             .n_contexts = 1,
                             .block_rows = 256});
  ASSERT_EQ(variants.size(), 2u);
  EXPECT_EQ(variants[0].metrics[0].mean, 0);
  EXPECT_NEAR(variants[1].metrics[0].mean, 0, 0.01);
  EXPECT_LT(variants[0].metrics[1].mean, 5.3);  // any of 252 words alike: 5.5
}

TEST_F(VestigeExperiment, RowsOfEveryLayer) {
  const Model model = Model::load(model_file("a1"), {.n_threads = 1});
  const auto variants = run(model, "vestige-rows", {.length = 512, .n_contexts = 1});
  ASSERT_EQ(variants.size(), 5u);
  for (const VariantSummary& variant : variants) {
    EXPECT_EQ(variant.n_questions, 2);
    EXPECT_GE(variant.metrics[0].mean, 0);
    EXPECT_LE(variant.metrics[0].mean, 1);
  }
}

TEST_F(VestigeExperiment, RefusesWhatItCannotRun) {
  const Model model = Model::load(model_file("a1"), {.n_threads = 1});
  const auto refused = [&](const ExperimentOptions& options) {
    EXPECT_THROW(prepare_experiment(model, find("vestige-needle"), options), Error);
  };
  refused({.methods = {"sigmas"}});
  refused({.methods = {"sigma", "sigma"}});
  refused({.ratios = {0}});
  refused({.length = 1 << 20});
  for (const char* method : {"recall-", "recall-0", "-streamed", "recent-4"}) {
    EXPECT_THROW(prepare_experiment(model, find("vestige-stream"), {.methods = {method}}), Error);
  }
  const std::string other = test::temp_path("other.gguf");
  test::write_tiny_model({.architecture = "kimi-linear", .n_vocab = 300}, other);
  EXPECT_THROW(prepare_experiment(Model::load(other), find("vestige-needle"), {}), Error);
}

}  // namespace
}  // namespace ctxzip::eval
