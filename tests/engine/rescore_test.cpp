// Scores that are computed again, and whose queries they come from.
#include "engine/rescore.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ctxzip/error.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

class Rescore : public testing::Test {
 protected:
  Rescore() {
    const std::string path = temp_path("rescore.gguf");
    write_tiny_model({}, path);
    model_ = std::make_unique<Model>(Model::load(path, {.n_threads = 2}));
  }
  ZipPlan plan(int64_t n, const ZipOptions& options) const {
    PromptLayout layout;
    layout.prefix = {1, 2, 3};
    layout.turn = {4, 5};
    return plan_zip(*model_->state(), layout, random_tokens(n, 256, 7), options);
  }

  std::unique_ptr<Model> model_;
};

TEST_F(Rescore, BestPairsAreThoseKept) {
  for (const Method method :
       {Method::kKvzip, Method::kKvzipLogit, Method::kH2o, Method::kKnorm, Method::kRandom}) {
    ZipOptions options = {.method = method, .chunk_tokens = 256, .self_check = false, .seed = 5};
    options.recon_attention = ReconAttention::kLocal;
    Zipper zipper(*model_, plan(400, options), options);
    zipper.prefill();
    const Context context =
        zipper.take(method, options.allocation, zipper.select(method, {}, options.allocation));
    const KeepSet& kept = context.state()->rows.global.kept;
    const Scores scores = rescore(context);
    EXPECT_EQ(select_pairs(scores, kept.pairs_kept(), options.allocation), kept)
        << method_name(method);
  }
}

TEST_F(Rescore, RefusesContextsThatNothingScoredAsAWhole) {
  const auto error_of = [](const Context& context) {
    try {
      rescore(context);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kCancelled;
  };
  ZipOptions options = {.self_check = false};
  Zipper short_one(*model_, plan(20, options), options);
  short_one.prefill();
  EXPECT_EQ(error_of(short_one.take(options.method, options.allocation,
                                    short_one.select(options.method, {}, options.allocation))),
            ErrorKind::kUnsupported);
  options.schedule = Schedule::kStreaming;
  options.chunk_tokens = 256;
  EXPECT_EQ(error_of(StreamZipper(*model_, plan(400, options), options).run()),
            ErrorKind::kUnsupported);
}

// The prompt's queries see the same rows whether the text follows them or not. Products of
// quantised weights round their activations, which shows in another batch.
constexpr float kQuantisedRounding = 0.02F;

TEST(SmolLm2Queries, TextAndPromptTogetherAreAll) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const Model model = Model::load(model_path(kSmolLm2));
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model,
                plan_zip(*model.state(),
                         "The harbour master keeps two ledgers. One lists the ships, the other the "
                         "debts of their captains, and he shows neither to his brother.",
                         options),
                options);
  zipper.prefill();
  const Scores all = zipper.scores(Method::kKvzip);
  const Scores of_text = zipper.reconstruction_scores({.prompt_queries = false});
  const Scores of_prompt = zipper.scores(Method::kKvzipPrompt);
  int64_t n_of_prompt = 0;
  for (size_t pair = 0; pair < all.values.size(); ++pair) {
    const float expected = std::max(of_text.values[pair], of_prompt.values[pair]);
    ASSERT_NEAR(all.values[pair], expected, kQuantisedRounding * expected + 1e-6) << pair;
    n_of_prompt += of_prompt.values[pair] > of_text.values[pair];
  }
  EXPECT_GT(n_of_prompt, 0);
  EXPECT_LT(n_of_prompt, all.pairs() / 2);
}

}  // namespace
}  // namespace ctxzip::test
