// Models with sliding-window layers: what is scored, what is evicted, and what sessions see.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ctxzip/session.h"
#include "engine/gemma3_reference.h"
#include "engine/prompts.h"
#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/logits.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr int64_t kWindow = 32;
constexpr int64_t kVocab = 256;
constexpr int64_t kContext = 200;

// Token ids only.
Model tiny_gemma(int64_t n_layer = 6, int64_t pattern = 6) {
  const std::string path = temp_path("gemma.gguf");
  write_tiny_model({.architecture = "gemma3",
                    .n_layer = n_layer,
                    .head_dim = 32,
                    .window = kWindow,
                    .pattern = pattern},
                   path);
  return Model::load(path, {.n_threads = 2, .f32_rows = true});
}

PromptLayout layout() {
  PromptLayout layout;
  layout.prefix = {1, 2, 3};
  layout.question = {4, 5};
  layout.turn = {6, 7};
  layout.next_turn = {8};
  return layout;
}

// The reference attends to the whole text.
ZipOptions plain() {
  return {.recon_attention = ReconAttention::kFull, .chunk_tokens = 128, .self_check = false};
}

Zipper prefilled(const Model& model, int64_t n_context = kContext, int64_t batch = 512) {
  ZipOptions options = plain();
  options.batch_tokens = batch;
  Zipper zipper(model,
                plan_zip(*model.state(), layout(), random_tokens(n_context, kVocab, 5), options),
                options);
  zipper.prefill();
  return zipper;
}

Context whole(const Model& model) {
  Zipper zipper = prefilled(model);
  const int64_t n_global = model.state()->hp.layers.n_global();
  return zipper.take(Method::kKvzip, Allocation::kGlobal, keep_all(n_global, 2, kContext));
}

TEST(Window, ScoresEqualADoublePrecisionReference) {
  const Model model = tiny_gemma(4, 2);
  ASSERT_EQ(model.state()->hp.layers.kinds(), "lglg");
  Zipper zipper = prefilled(model);
  const Scores& found = zipper.scores(Method::kKvzip);

  const Gemma3Reference reference(model.info().path);
  const ZipPlan& plan = zipper.plan();
  std::vector<Token> tokens = plan.layout.prefix;
  tokens.insert(tokens.end(), plan.context.begin(), plan.context.end());
  const Gemma3Reference::Rows rows = reference.prefill(tokens);
  const RepeatPrompts prompts = repeat_prompts(model.state()->tokenizer, plan.layout);
  double worst = 0;
  for (const ReconstructionPass& pass :
       plan_reconstruction(prompts, plan.context, plan.chunk_tokens)) {
    const auto expected =
        reference.scores(rows, pass.input, plan.n_prefix(), plan.n_prefix() + pass.begin,
                         plan.n_prefix() + pass.end);
    const int64_t width = pass.end - pass.begin;
    for (int64_t head = 0; head < found.n_layer * found.n_kv_head; ++head) {
      for (int64_t column = 0; column < width; ++column) {
        const double wanted = expected[static_cast<size_t>(head * width + column)];
        const auto at = static_cast<size_t>(head * found.n_context + pass.begin + column);
        worst = std::max(worst, std::abs(static_cast<double>(found.values[at]) - wanted) / wanted);
      }
    }
  }
  std::printf("largest relative difference %.2g\n", worst);
  EXPECT_LE(worst, 1e-3);
}

TEST(Window, PrefillBatchesAreTheSameModel) {
  const Model model = tiny_gemma();
  const auto question = random_tokens(20, kVocab, 9);
  std::vector<std::vector<float>> logits;
  for (const int64_t batch : {512, 1, 7, 31, 33, 64}) {
    Zipper zipper = prefilled(model, kContext, batch);
    const Context context =
        zipper.take(Method::kKvzip, Allocation::kGlobal, keep_all(1, 2, kContext));
    SegmentTable past = segment_table(*model.state());
    past.add(context.state()->rows);
    logits.push_back(TailRun(model, past, kContext + 3, 64).feed(question, 5));
    for (size_t at = 0; at < logits[0].size(); ++at) {
      ASSERT_NEAR(logits.back()[at], logits[0][at], kGeluLogitDelta) << "batch " << batch;
    }
  }
}

TEST(Window, OnlyGlobalLayersCountAndOnlyWindowsAreKept) {
  const Model model = tiny_gemma(12);
  Zipper zipper = prefilled(model);
  const KeepSet kept = zipper.select(Method::kKvzip, {.ratio = 0.25}, Allocation::kGlobal);
  const Context context = zipper.take(Method::kKvzip, Allocation::kGlobal, kept);
  const ZipReport& report = context.report();
  const int64_t pair = 2 * 32 * 4;
  EXPECT_EQ(report.pairs_total, 2 * 2 * kContext);
  EXPECT_EQ(report.pairs_kept, kContext);
  EXPECT_EQ(report.kv_bytes_window, 10 * 2 * (kWindow - 1) * pair);
  EXPECT_EQ(report.kv_bytes_kept, (kContext + 2 * 2 * 3) * pair + report.kv_bytes_window);
  EXPECT_EQ(context.head_counts().layers, (std::vector<int64_t>{5, 11}));
  EXPECT_GT(static_cast<int64_t>(context.save().size()), report.kv_bytes_kept);
}

// All that a session was told and answered, one turn after the other.
struct Transcript {
  std::vector<Token> tokens;
  std::vector<size_t> answered;  // where each answer token stands
};

void append_turn(Transcript& transcript, const std::vector<Token>& prompt, const Answer& answer) {
  transcript.tokens.insert(transcript.tokens.end(), prompt.begin(), prompt.end());
  for (const Token token : answer.tokens) {
    transcript.answered.push_back(transcript.tokens.size());
    transcript.tokens.push_back(token);
  }
}

TEST(Window, ThreeChatTurnsPastTheWindowEqualOnePrompt) {
  const Model model = tiny_gemma();
  const Context context = whole(model);
  Session session(context);
  Transcript chat;
  chat.tokens = layout().prefix;
  chat.tokens.insert(chat.tokens.end(), context.tokens().begin(), context.tokens().end());
  const int64_t n_before = static_cast<int64_t>(chat.tokens.size());
  append_turn(chat, {4, 5, 6, 7}, session.chat("", {.max_tokens = 50}));
  append_turn(chat, {8, 6, 7}, session.chat("", {.max_tokens = 50}));
  append_turn(chat, {8, 6, 7}, session.chat("", {.max_tokens = 50}));
  ASSERT_GT(session.turn_tokens(), 4 * kWindow);
  ASSERT_GT(n_before, kWindow);

  const SegmentTable nothing = segment_table(*model.state());
  const auto logits = TailRun(model, nothing, 0).feed(chat.tokens, 512);
  for (const size_t at : chat.answered) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>((at - 1) * kVocab);
    const float best = *std::max_element(row, row + kVocab);
    EXPECT_GE(row[chat.tokens[at]], best - 2 * kGeluLogitDelta) << "token " << at;
  }
}

TEST(Window, DroppedTurnsLeaveNoTrace) {
  const Model model = tiny_gemma();
  const Context context = whole(model);
  const auto expected = Session(context).ask("", {.max_tokens = 60}).tokens;
  const Context opened = Context::open(model, context.save());
  Session session(opened);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(session.ask("", {.max_tokens = 60}).tokens, expected);
  }
  // A chat past the window, dropped.
  for (int turn = 0; turn < 3; ++turn) session.chat("", {.max_tokens = 50});
  session.reset();
  EXPECT_EQ(session.ask("", {.max_tokens = 60}).tokens, expected);
}

TEST(Window, ACancelledTurnLeavesNoTrace) {
  const Model model = tiny_gemma();
  const Context context = whole(model);
  Session plain_chat(context);
  Session interrupted(context);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_EQ(plain_chat.chat("", {.max_tokens = 50}).tokens,
              interrupted.chat("", {.max_tokens = 50}).tokens);
  }
  CancelToken cancel;
  cancel.cancel();
  EXPECT_EQ(interrupted.chat("", {.max_tokens = 50, .cancel = &cancel}).stop_reason,
            StopReason::kCancelled);
  EXPECT_EQ(plain_chat.chat("", {.max_tokens = 50}).tokens,
            interrupted.chat("", {.max_tokens = 50}).tokens);
}

}  // namespace
}  // namespace ctxzip::test
