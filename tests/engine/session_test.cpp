// Asking and chatting over a zipped context.
#include "ctxzip/session.h"

#include <gtest/gtest.h>

#include <sstream>

#include "ctxzip/error.h"
#include "ctxzip/zip.h"
#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr const char* kText =
    "The lighthouse at Kettle Point was built in 1878 by Anna Breck. It stands 31 metres tall and "
    "is painted white. "
    "Every evening its keeper, Tom Hale, climbs 164 steps, winds the clockwork and lights the "
    "lamp. In 1931 the lamp "
    "was replaced by an electric one, and the keeper's house became a small museum of the sea.";

class SessionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!model_present(kSmolLm2)) return;
    context_ = std::make_unique<Context>(
        zip(Model::load(model_path(kSmolLm2)), kText, {.budget = {.ratio = 0.6}}));
  }
  static void TearDownTestSuite() { context_.reset(); }
  void SetUp() override { CTXZIP_NEEDS_MODEL(kSmolLm2); }

  static std::unique_ptr<Context> context_;
};
std::unique_ptr<Context> SessionTest::context_;

AskOptions brief(int64_t n = 12) { return {.max_tokens = n}; }

TEST_F(SessionTest, EveryQuestionMeetsThePristineContext) {
  Session session(*context_);
  const Answer a = session.ask("When was the lighthouse built?", brief());
  const Answer b = session.ask("Who is the keeper?", brief());
  EXPECT_FALSE(a.tokens.empty());
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(session.ask("When was the lighthouse built?", brief()).tokens, a.tokens);
    EXPECT_EQ(session.ask("Who is the keeper?", brief()).tokens, b.tokens);
  }
  EXPECT_EQ(session.turn_tokens(), 0);
  EXPECT_EQ(a.context_tokens_prefilled, 0);
  EXPECT_EQ(Session(*context_).ask("Who is the keeper?", brief()).tokens, b.tokens);
}

TEST_F(SessionTest, TwoContextsDoNotMix) {
  const Context other =
      zip(context_->model(),
          "The bakery in Long Street opens at six and sells rye bread for two crowns. "
          "Its owner, Mila Storm, also bakes seed cakes on Sundays for the choir.",
          {.self_check = false});
  Session a(*context_);
  Session b(other);
  const auto first_a = a.ask("What is this about?", brief()).tokens;
  const auto first_b = b.ask("What is this about?", brief()).tokens;
  EXPECT_EQ(a.ask("What is this about?", brief()).tokens, first_a);
  EXPECT_EQ(b.ask("What is this about?", brief()).tokens, first_b);
  EXPECT_NE(first_a, first_b);
}

TEST_F(SessionTest, ReopenedFromBytesStreamOrFileItAnswersTheSame) {
  const auto expected = Session(*context_).ask("How tall is it?", brief()).tokens;
  const Model& model = context_->model();
  EXPECT_EQ(Session(Context::open(model, context_->save())).ask("How tall is it?", brief()).tokens,
            expected);
  std::stringstream stream;
  context_->save(stream);
  EXPECT_EQ(Session(Context::open(model, stream)).ask("How tall is it?", brief()).tokens, expected);
  const std::string path = temp_path("session.ctz");
  context_->save(path);
  EXPECT_EQ(Session(Context::open(model, path)).ask("How tall is it?", brief()).tokens, expected);
  EXPECT_EQ(Context::open(model, path).text(), kText);
}

TEST_F(SessionTest, AChatProcessesNewTokensOnly) {
  Session session(*context_);
  int64_t expected_rows = 0;
  for (const char* message : {"When was it built?", "By whom?", "How tall is it?"}) {
    const Answer answer = session.chat(message, brief(8));
    EXPECT_EQ(answer.context_tokens_prefilled, 0);
    EXPECT_LT(answer.prompt_tokens, 30);
    // All of the prompt and all generated tokens but the last, which the next turn brings.
    expected_rows += answer.prompt_tokens + answer.output_tokens -
                     (answer.stop_reason == StopReason::kEnd ? 0 : 1);
    EXPECT_EQ(session.turn_tokens(), expected_rows);
  }
  EXPECT_THROW(session.ask("Mixed?", brief()), Error);
  session.reset();
  EXPECT_EQ(session.ask("How tall is it?", brief()).tokens,
            Session(*context_).ask("How tall is it?", brief()).tokens);
}

TEST_F(SessionTest, StreamedPiecesAreTheText) {
  std::string streamed;
  AskOptions options = brief(24);
  options.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  EXPECT_EQ(Session(*context_).ask("Tell me about the lighthouse.", options).text, streamed);
}

TEST_F(SessionTest, StopsForTheStatedReason) {
  Session session(*context_);
  const Answer whole = session.ask("Tell me about the lighthouse.", brief(16));
  EXPECT_EQ(whole.stop_reason, StopReason::kLength);
  EXPECT_EQ(whole.output_tokens, 16);
  AskOptions stopping = brief(16);
  stopping.stop = {whole.text.substr(whole.text.size() / 2, 4)};
  const Answer stopped = session.ask("Tell me about the lighthouse.", stopping);
  EXPECT_EQ(stopped.stop_reason, StopReason::kStopString);
  EXPECT_EQ(whole.text.find(stopped.text), 0u);
  EXPECT_EQ(stopped.text.find(stopping.stop[0]), std::string::npos);

  CancelToken cancel;
  AskOptions cancelled = brief(16);
  cancelled.cancel = &cancel;
  cancelled.on_text = [&](std::string_view) {
    cancel.cancel();
    return true;
  };
  EXPECT_EQ(session.ask("Tell me about the lighthouse.", cancelled).stop_reason,
            StopReason::kCancelled);
  EXPECT_EQ(session.ask("Tell me about the lighthouse.", brief(16)).tokens, whole.tokens);
  EXPECT_EQ(session.ask("Nothing?", brief(0)).output_tokens, 0);
}

TEST_F(SessionTest, EmptyAndStrangeQuestionsAreAnswered) {
  Session session(*context_);
  EXPECT_EQ(session.ask("", brief(4)).output_tokens, 4);
  EXPECT_EQ(session.ask("", brief(4)).output_tokens, 4);
  EXPECT_GT(session.ask("caf\xC3 \xFF <|im_end|>", brief(4)).output_tokens, 0);
}

TEST_F(SessionTest, SamplingRepeatsWithASeed) {
  Session session(*context_);
  AskOptions options = brief(12);
  options.sampling = {.temperature = 1.5, .seed = 7};
  const auto first = session.ask("Tell a story.", options).tokens;
  EXPECT_EQ(session.ask("Tell a story.", options).tokens, first);
  options.sampling.seed = 8;
  EXPECT_NE(session.ask("Tell a story.", options).tokens, first);
  options.sampling.temperature = -1;
  EXPECT_THROW(session.ask("Tell a story.", options), Error);
}

// A model of token ids only: prompts are what the layout says, so lengths are exact.
TEST(SessionLimits, EndsWithLengthWhenTheTrainedLengthIsFull) {
  const std::string path = temp_path("limits.gguf");
  write_tiny_model({.n_ctx_train = 700}, path);
  const Model model = Model::load(path);
  PromptLayout layout;
  layout.prefix = {1, 2};
  layout.question = {3};
  layout.turn = {4, 5};
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model, plan_zip(*model.state(), layout, random_tokens(400, 256, 1), options),
                options);
  zipper.prefill();
  const Context context = zipper.take(Method::kRandom, Allocation::kGlobal,
                                      zipper.select(Method::kRandom, {}, Allocation::kGlobal));
  Session session(context);
  const Answer answer = session.ask("", {.max_tokens = 100000});
  EXPECT_EQ(answer.stop_reason, StopReason::kLength);
  EXPECT_EQ(402 + answer.prompt_tokens + answer.output_tokens,
            700 + 1);  // the last token needs no row
  const Answer turn = session.chat("", {.max_tokens = 100000});
  EXPECT_EQ(turn.stop_reason, StopReason::kLength);
  EXPECT_THROW(session.chat("", {}), Error);
  session.reset();
  EXPECT_EQ(session.ask("", {.max_tokens = 4}).tokens.size(), 4u);
}

TEST(SessionMismatch, AnotherModelIsRefusedWithTheField) {
  const std::string one = temp_path("one.gguf");
  const std::string other = temp_path("other.gguf");
  write_tiny_model({.seed = 1}, one);
  write_tiny_model({.seed = 2}, other);
  const Model model = Model::load(one);
  PromptLayout layout;
  layout.turn = {1};
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model, plan_zip(*model.state(), layout, random_tokens(40, 256, 1), options),
                options);
  zipper.prefill();
  const Context context = zipper.take(Method::kRandom, Allocation::kGlobal, keep_all(3, 2, 40));
  try {
    Context::open(Model::load(other), context.save());
    FAIL() << "opened with another model";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    EXPECT_NE(std::string(error.what()).find("weights"), std::string::npos) << error.what();
  }
  EXPECT_THROW(Session(Context::open(Model::load(one, {.f32_rows = true}), context.save())), Error);
}

}  // namespace
}  // namespace ctxzip::test
