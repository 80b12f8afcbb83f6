// Contexts under VestigeKV: sessions, files, and what they leave behind.
#include <gtest/gtest.h>

#include "ctxzip/error.h"
#include "ctxzip/session.h"
#include "engine/recall_zip.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr int64_t kVocab = 256;

class RecallSession : public testing::Test {
 protected:
  static Model tiny(int64_t n_ctx_train = 8192) {
    const std::string path = temp_path("recall_session.gguf");
    write_tiny_model({.architecture = "kimi-linear",
                      .n_ctx_train = n_ctx_train,
                      .n_expert = 0,
                      .kinds = "rgrg",
                      .spread = 2.5f},
                     path);
    return Model::load(path, {.n_threads = 1});
  }
  static PromptLayout layout() {
    PromptLayout layout;
    layout.prefix = {1, 2, 3};
    layout.question = {4, 5};
    layout.turn = {6, 7};
    layout.next_turn = {8};
    return layout;
  }
  static StreamOptions options() {
    StreamOptions options;
    options.policy.block_rows = 256;
    options.policy.keep_ratio = 1.0 / 16;
    return options;
  }
  static std::vector<float> logits_of(const Context& context, const std::vector<Token>& tokens) {
    const detail::ContextState& state = *context.state();
    RecallStream stream(state.model, *state.stream, state.rows, state.meta.recall->layers);
    std::vector<float> all;
    for (const Token token : tokens) {
      const auto logits = stream.decode(token);
      all.insert(all.end(), logits.begin(), logits.end());
    }
    return all;
  }

  const Model model_ = tiny();
  const Context context_ = zip_stream(model_, layout(), random_tokens(1000, kVocab, 5), options());
};

TEST_F(RecallSession, AllRowsAreThereAndCalibrated) {
  EXPECT_EQ(context_.report().pairs_kept, context_.report().pairs_total);
  EXPECT_EQ(context_.report().method, "vestige");
  const auto recall = context_.recall_report();
  ASSERT_TRUE(recall);
  for (const RecallLayerReport& layer : recall->layers) {
    EXPECT_EQ(layer.kept + layer.archived, 3 * 256);
    EXPECT_EQ(layer.tail, 1003 - 3 * 256);
    EXPECT_EQ(layer.calibration.phase, CalibrationPhase::kCalibrated);
  }
  EXPECT_EQ(recall->layers[1].layer, 3);
}

TEST_F(RecallSession, ATextBeyondTheTrainedLengthFits) {
  const int64_t n_train = 512;
  const Model model = tiny(n_train);
  const auto text = random_tokens(n_train + 300, kVocab, 5);
  EXPECT_THROW(zip_stream(model, layout(), text, options()), Error);
  StreamOptions allowed = options();
  allowed.allow_long = true;
  const Context context = zip_stream(model, layout(), text, allowed);
  EXPECT_EQ(context.report().context_tokens, n_train + 300);
  EXPECT_GT(Session(context).ask("", {.max_tokens = 5}).output_tokens, 0);
}

// Whether the text is shorter than the tokens that calibrate or a block is: the calibration is of
// the rows that are closed in the end.
TEST_F(RecallSession, ClosingNowDoesNotSpoilTheCalibration) {
  for (const int64_t block : {64, 256}) {
    for (const int64_t n : {80, 130, 700}) {
      StreamOptions closing = options();
      closing.close_now = true;
      closing.policy.block_rows = block;
      const auto recall =
          *zip_stream(model_, layout(), random_tokens(n, kVocab, 5), closing).recall_report();
      const RecallLayerReport& layer = recall.layers[0];
      EXPECT_GE(layer.kept + layer.archived, 64) << block << " " << n;
      EXPECT_NE(layer.calibration.phase, CalibrationPhase::kStale) << block << " " << n;
      EXPECT_LT(layer.tail, block);
    }
  }
}

TEST_F(RecallSession, AskLeavesNoTrace) {
  Session session(context_);
  const AskOptions ask = {.max_tokens = 40};
  const auto expected = session.ask("", ask).tokens;
  EXPECT_GT(expected.size(), 5u);
  EXPECT_EQ(session.ask("", ask).tokens, expected);
  CancelToken cancel;
  cancel.cancel();
  EXPECT_EQ(session.ask("", {.max_tokens = 40, .cancel = &cancel}).stop_reason,
            StopReason::kCancelled);
  EXPECT_EQ(session.ask("", ask).tokens, expected);
  EXPECT_EQ(session.recall_report()->layers[0].tail, context_.recall_report()->layers[0].tail);
  EXPECT_GT(session.recall_report()->steps, 0);
  const std::vector<Question> questions(3, Question{"", ask});
  for (const AskResult& result : ask_together(context_, questions)) {
    EXPECT_EQ(std::get<Answer>(result).tokens, expected);
  }
}

TEST_F(RecallSession, AReloadedContextAnswersBitForBit) {
  const Context opened = Context::open(model_, context_.save());
  EXPECT_TRUE(opened.state()->meta.recall->layers == context_.state()->meta.recall->layers);
  EXPECT_TRUE(opened.state()->rows.states == context_.state()->rows.states);
  EXPECT_EQ(opened.save(), context_.save());
  const auto tokens = random_tokens(60, kVocab, 9);
  EXPECT_EQ(logits_of(opened, tokens), logits_of(context_, tokens));
}

// Saved in the middle of a conversation and of a calibration, against a stream that never was.
TEST_F(RecallSession, AStreamThatIsSavedWhileItGrows) {
  const auto text = random_tokens(900, kVocab, 5);
  const auto more = random_tokens(30, kVocab, 6);
  for (const int64_t n_steps : {7, 25, 130}) {
    RecallStream stream(model_, options());
    PromptLayout none;
    stream.prefill(text, nullptr);
    std::vector<Token> context = text;
    for (const Token token : random_tokens(n_steps, kVocab, 7)) {
      stream.decode(token);
      context.push_back(token);
    }
    const Context frozen = freeze(stream, model_, none, context, options());
    const Context opened = Context::open(model_, frozen.save());
    std::vector<float> expected;
    for (const Token token : more) {
      const auto logits = stream.decode(token);
      expected.insert(expected.end(), logits.begin(), logits.end());
    }
    EXPECT_EQ(logits_of(opened, more), expected) << n_steps;
  }
}

TEST_F(RecallSession, ACancelledTurnLeavesNoTrace) {
  const AskOptions ask = {.max_tokens = 20};
  Session undisturbed(context_);
  std::vector<std::vector<Token>> expected;
  for (int turn = 0; turn < 3; ++turn) expected.push_back(undisturbed.chat("", ask).tokens);
  Session session(context_);
  CancelToken cancel;
  cancel.cancel();
  for (int turn = 0; turn < 3; ++turn) {
    const int64_t before = session.turn_tokens();
    EXPECT_EQ(session.chat("", {.max_tokens = 20, .cancel = &cancel}).stop_reason,
              StopReason::kCancelled);
    EXPECT_EQ(session.turn_tokens(), before);
    EXPECT_EQ(session.chat("", ask).tokens, expected[static_cast<size_t>(turn)]) << turn;
  }
  session.reset();
  EXPECT_EQ(session.chat("", ask).tokens, expected[0]);
}

TEST_F(RecallSession, OtherSettingsForASession) {
  StreamOptions off = stream_options(context_);
  off.policy.recall = false;
  Session session(with_stream_options(context_, off));
  session.ask("", {.max_tokens = 10});
  EXPECT_EQ(session.recall_report()->fired_rows, 0);
  EXPECT_EQ(session.recall_report()->target, 0);
  StreamOptions other = stream_options(context_);
  other.policy.keep_ratio = 0.5;
  EXPECT_THROW(with_stream_options(context_, other), Error);
}

TEST_F(RecallSession, AChatFromNothing) {
  StreamOptions small = options();
  small.policy.block_rows = 64;
  const Context empty = zip_stream(model_, layout(), {}, small);
  EXPECT_TRUE(is_stream(empty));
  EXPECT_THROW(empty.save(), Error);
  Session session(empty);
  const auto first = session.chat("", {.max_tokens = 30}).tokens;
  for (int turn = 0; turn < 4; ++turn) session.chat("", {.max_tokens = 30});
  EXPECT_GT(session.recall_report()->layers[0].archived, 0);
  session.reset();
  EXPECT_EQ(session.turn_tokens(), 0);
  EXPECT_EQ(session.chat("", {.max_tokens = 30}).tokens, first);
}

}  // namespace
}  // namespace ctxzip::test
