// Models with recurrent layers: their states at the context's end, in passes, sessions and files.
#include <gguf.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "ctxzip/error.h"
#include "ctxzip/session.h"
#include "engine/passes.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr int64_t kVocab = 256;
constexpr int64_t kContext = 150;
constexpr int64_t kPrefix = 3;

class Hybrid : public testing::TestWithParam<const char*> {
 protected:
  Hybrid() {
    const std::string path = temp_path("hybrid.gguf");
    write_tiny_model({.architecture = GetParam(), .kinds = "rgr"}, path);
    model_.emplace(Model::load(path, {.n_threads = 2, .f32_rows = true}));
  }

  static PromptLayout layout() {
    PromptLayout layout;
    layout.prefix = {1, 2, 3};
    layout.question = {4, 5};
    layout.turn = {6, 7};
    layout.next_turn = {8};
    return layout;
  }
  ZipPlan plan(const ZipOptions& options) const {
    return plan_zip(*model_->state(), layout(), random_tokens(kContext, kVocab, 5), options);
  }
  Zipper prefilled(int64_t batch = 512) const {
    const ZipOptions options = {.chunk_tokens = 64, .self_check = false, .batch_tokens = batch};
    Zipper zipper(*model_, plan(options), options);
    zipper.prefill();
    return zipper;
  }
  Context half() const {
    Zipper zipper = prefilled();
    const KeepSet kept = zipper.select(Method::kKvzip, {.ratio = 0.5}, Allocation::kGlobal);
    return zipper.take(Method::kKvzip, Allocation::kGlobal, kept);
  }

  std::optional<Model> model_;
};

double largest_difference(const std::vector<float>& a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0;
  for (size_t at = 0; at < a.size(); ++at) {
    worst = std::max(worst, std::abs(static_cast<double>(a[at]) - static_cast<double>(b[at])));
  }
  return worst;
}

TEST_P(Hybrid, ScoringChangesNoState) {
  Zipper zipper = prefilled();
  const RecurrentStates before = zipper.full_rows().window.states;
  EXPECT_EQ(before.n_layer, 2);
  EXPECT_TRUE(std::any_of(before.values.begin(), before.values.end(),
                          [](float value) { return value != 0; }));
  const Scores& scores = zipper.scores(Method::kKvzip);
  EXPECT_TRUE(zipper.full_rows().window.states == before);
  EXPECT_TRUE(std::any_of(scores.values.begin(), scores.values.end(),
                          [](float value) { return value > 0; }));
}

// A pass starts from the states at the context's end: it sees what a session sees.
TEST_P(Hybrid, APassSeesWhatASessionSees) {
  Zipper zipper = prefilled();
  SegmentTable past = segment_table(*model_->state());
  past.add(zipper.full_rows().global, 0, kPrefix + kContext);
  past.add_window(zipper.full_rows().window);
  const auto tokens = random_tokens(20, kVocab, 9);
  const auto expected = TailRun(*model_, past, kPrefix + kContext, 64).feed(tokens, 7);
  std::vector<int32_t> rows(tokens.size());
  for (size_t at = 0; at < rows.size(); ++at) rows[at] = static_cast<int32_t>(at);
  GraphRunner runner(*model_->state());
  for (int round = 0; round < 2; ++round) {
    const auto found = run_pass(*model_->state(), runner, past, static_cast<int>(past.size()),
                                nullptr, {tokens, kPrefix + kContext, rows}, {});
    EXPECT_LE(largest_difference(expected, found), 1e-4);
  }
}

TEST_P(Hybrid, BatchesOfThePrefillDoNotMatter) {
  const RecurrentStates whole = prefilled().full_rows().window.states;
  for (const int64_t batch : {1, 2, 50}) {
    const RecurrentStates parts = prefilled(batch).full_rows().window.states;
    EXPECT_LE(largest_difference(whole.values, parts.values), 1e-4) << batch;
  }
}

TEST_P(Hybrid, StreamingEndsInTheSameStates) {
  const ZipOptions options = {.budget = {.ratio = 1.0},
                              .schedule = Schedule::kStreaming,
                              .chunk_tokens = 64,
                              .self_check = false};
  const Context streamed = StreamZipper(*model_, plan(options), options).run();
  const RecurrentStates whole = prefilled().full_rows().window.states;
  EXPECT_LE(largest_difference(whole.values, streamed.state()->rows.states.values), 1e-4);
}

TEST_P(Hybrid, AskLeavesNoTrace) {
  const Context context = half();
  Session session(context);
  const AskOptions options = {.max_tokens = 12};
  const auto expected = session.ask("", options).tokens;
  EXPECT_EQ(expected.size(), 12u);
  EXPECT_EQ(session.ask("", options).tokens, expected);
  CancelToken cancel;
  cancel.cancel();
  EXPECT_EQ(session.ask("", {.max_tokens = 12, .cancel = &cancel}).stop_reason,
            StopReason::kCancelled);
  EXPECT_EQ(session.ask("", options).tokens, expected);
  const Context opened = Context::open(*model_, context.save());
  EXPECT_TRUE(opened.state()->rows.states == context.state()->rows.states);
  EXPECT_EQ(Session(opened).ask("", options).tokens, expected);
}

TEST_P(Hybrid, ACancelledTurnLeavesNoTrace) {
  const Context context = half();
  const AskOptions options = {.max_tokens = 6};
  Session undisturbed(context);
  std::vector<std::vector<Token>> expected;
  for (int turn = 0; turn < 3; ++turn) {
    expected.push_back(undisturbed.chat("", options).tokens);
  }
  Session session(context);
  CancelToken cancel;
  cancel.cancel();
  for (int turn = 0; turn < 3; ++turn) {
    const int64_t before = session.turn_tokens();
    const Answer answer = session.chat("", {.max_tokens = 6, .cancel = &cancel});
    EXPECT_EQ(answer.stop_reason, StopReason::kCancelled);
    EXPECT_EQ(session.turn_tokens(), before);
    EXPECT_EQ(session.chat("", options).tokens, expected[static_cast<size_t>(turn)]) << turn;
  }
  session.reset();
  EXPECT_EQ(session.chat("", options).tokens, expected[0]);
}

INSTANTIATE_TEST_SUITE_P(Tiny, Hybrid, testing::Values("kimi-linear", "granitehybrid"),
                         [](const auto& test) { return std::string(test.param).substr(0, 4); });

// The message of the error that `run` throws.
std::string refusal(ErrorKind kind, const std::function<void()>& run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

std::string load_refusal(const TinyModel& tiny) {
  const std::string path = temp_path("refused.gguf");
  write_tiny_model(tiny, path);
  return refusal(ErrorKind::kUnsupported, [&] { Model::load(path); });
}

void expect_names(const std::string& message, const char* what) {
  EXPECT_NE(message.find(what), std::string::npos) << message;
}

TEST(HybridFiles, WhatIsNotSupportedIsNamed) {
  expect_names(load_refusal({.architecture = "kimi-linear", .kinds = "rr"}), "recurrent");
  expect_names(load_refusal({.architecture = "deepseek2",
                             .edit =
                                 [](gguf_context* gguf) {
                                   gguf_remove_key(gguf, "deepseek2.attention.key_length_mla");
                                 }}),
               "key_length_mla");
  expect_names(load_refusal({.architecture = "deepseek2", .latent = 36}), "36 + 8");
  expect_names(load_refusal({.architecture = "granitehybrid",
                             .edit =
                                 [](gguf_context* gguf) {
                                   gguf_set_val_u32(gguf, "granitehybrid.ssm.inner_size", 64);
                                 }}),
               "state space");
}

TEST(HybridFiles, LatentRowsAreNotQuantised) {
  const std::string path = temp_path("latent.gguf");
  write_tiny_model({.architecture = "deepseek2"}, path);
  const Model model = Model::load(path);
  EXPECT_EQ(model.info().kv_bytes_per_token, 3 * 40 * 2);
  const std::string message = refusal(ErrorKind::kUnsupported, [&] {
    plan_zip(*model.state(), {}, random_tokens(50, kVocab, 1), {.kv = KvType::kQ8});
  });
  expect_names(message, "latent");
}

TEST(HybridFiles, RotaryOrNotIsKnown) {
  const auto rotary = [](const TinyModel& tiny) {
    const std::string path = temp_path("rotary.gguf");
    write_tiny_model(tiny, path);
    return Model::load(path).state()->hp.rotary;
  };
  EXPECT_TRUE(rotary({.architecture = "deepseek2"}));
  EXPECT_FALSE(rotary({.architecture = "kimi-linear"}));
  EXPECT_TRUE(rotary({.architecture = "kimi-linear-rope"}));
  EXPECT_FALSE(rotary({.architecture = "granitehybrid", .rotary = false}));
  EXPECT_TRUE(rotary({.architecture = "granitehybrid", .rotary = true}));
}

}  // namespace
}  // namespace ctxzip::test
