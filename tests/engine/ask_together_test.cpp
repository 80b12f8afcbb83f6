// Several sessions over one context decode side by side as each would alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "ctxzip/error.h"
#include "ctxzip/session.h"
#include "ctxzip/zip.h"
#include "engine/context_tail.h"
#include "engine/zipper.h"
#include "support/engine_run.h"
#include "support/logits.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

constexpr int64_t kVocab = 256;
constexpr int64_t kContext = 700;  // two blocks of rows for a head that keeps most
constexpr double kMaxDelta = 1e-4;
Context ragged_context(const char* architecture, KvType kv, int n_threads = 2) {
  const std::string path = temp_path("together.gguf");
  write_tiny_model({.architecture = architecture,
                    .n_layer = 4,
                    .head_dim = 64,
                    .window = std::string(architecture) == "gemma3" ? 48 : 0},
                   path);
  // f32 rows cannot be quantised; f16 ones round alike in both ways of decoding.
  const Model model = Model::load(path, {.n_threads = n_threads});
  const ZipOptions options = {.budget = {.ratio = 0.8}, .kv = kv, .self_check = false};
  Zipper zipper(model, plan_zip(*model.state(), {}, random_tokens(kContext, kVocab, 5), options),
                options);
  zipper.prefill();
  return zipper.take(Method::kKvzip, Allocation::kGlobal,
                     zipper.select(Method::kKvzip, options.budget, Allocation::kGlobal));
}

struct Case {
  const char* architecture;
  KvType kv;
  double max_delta;
};
void PrintTo(const Case& test, std::ostream* out) {
  *out << test.architecture << " " << static_cast<int>(test.kv);
}

class TogetherTest : public testing::TestWithParam<Case> {};

// Tails of different lengths, some across a window and across a block of 512 rows.
const int64_t kTails[] = {1, 30, 47, 520};
constexpr uint32_t kSteps = 5;

using Tails = std::vector<std::unique_ptr<ContextTail>>;

Tails fed_tails(const Context& context) {
  Tails tails;
  for (const int64_t n : kTails) {
    tails.push_back(std::make_unique<ContextTail>(context.state()));
    tails.back()->feed(random_tokens(n, kVocab, static_cast<uint32_t>(n)), nullptr);
  }
  return tails;
}

std::vector<Token> step_tokens(uint32_t step) {
  return random_tokens(std::ssize(kTails), kVocab, 100 + step);
}

// (step, lane, vocabulary)
std::vector<float> alone(const Context& context) {
  const Tails tails = fed_tails(context);
  std::vector<float> all;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const auto tokens = step_tokens(step);
    for (size_t lane = 0; lane < tails.size(); ++lane) {
      const auto logits = tails[lane]->feed({&tokens[lane], 1}, nullptr);
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  return all;
}

std::vector<float> together(const Context& context) {
  const Tails tails = fed_tails(context);
  std::vector<ContextTail*> lanes;
  for (const auto& tail : tails) lanes.push_back(tail.get());
  TailGroup group(context.state());
  std::vector<float> all;
  for (uint32_t step = 0; step < kSteps; ++step) {
    const auto logits = group.feed(lanes, step_tokens(step), nullptr);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// The largest difference of each step's lane, ascending.
std::vector<double> differences(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  EXPECT_EQ(a.size(), kSteps * std::size(kTails) * kVocab);
  std::vector<double> worst(kSteps * std::size(kTails));
  for (size_t at = 0; at < std::min(a.size(), b.size()); ++at) {
    double& here = worst[at / kVocab];
    here = std::max(here, std::abs(double{a[at]} - double{b[at]}));
  }
  std::sort(worst.begin(), worst.end());
  return worst;
}

TEST_P(TogetherTest, EqualsOneByOne) {
  const auto& [architecture, kv, max_delta] = GetParam();
  const Context context = ragged_context(architecture, kv);
  EXPECT_LE(differences(together(context), alone(context)).back(), max_delta);
}

INSTANTIATE_TEST_SUITE_P(Tiny, TogetherTest,
                         testing::Values(Case{"llama", KvType::kF16, kMaxDelta},
                                         Case{"gemma3", KvType::kF16, kGeluLogitDelta}));

// Queries are rounded to integers for q4 rows: now and then the last bit of a sum moves one to the
// next, and with it the logits, by less than q4 itself has moved them.
TEST(Together, EqualsOneByOneButForRoundedQueries) {
  const Context context = ragged_context("llama", KvType::kQ4);
  const std::vector<float> one_by_one = alone(context);
  const auto found = differences(together(context), one_by_one);
  const auto of_q4 = differences(alone(ragged_context("llama", KvType::kF16)), one_by_one);
  EXPECT_LE(found[found.size() / 2], kMaxDelta);
  EXPECT_LT(found.back(), of_q4[of_q4.size() / 2]);
  RecordProperty("worst", std::to_string(found.back()));
  RecordProperty("of_q4", std::to_string(of_q4[of_q4.size() / 2]));
}

TEST(Together, ThreadsChangeNothing) {
  std::vector<std::vector<float>> logits;
  for (const int n_threads : {1, 2, 3}) {
    const Context context = ragged_context("llama", KvType::kF16, n_threads);
    ContextTail a(context.state()), b(context.state());
    b.feed(random_tokens(9, kVocab, 1), nullptr);
    TailGroup group(context.state());
    ContextTail* const tails[] = {&a, &b};
    const Token tokens[] = {3, 4};
    const auto found = group.feed(tails, tokens, nullptr);
    logits.emplace_back(found.begin(), found.end());
    EXPECT_EQ(logits.back(), logits.front()) << n_threads << " threads";
  }
}

TEST(Together, AGroupMayShrinkAndGrow) {
  const Context context = ragged_context("llama", KvType::kF16);
  ContextTail a(context.state()), b(context.state()), alone(context.state());
  TailGroup group(context.state());
  ContextTail* const both[] = {&a, &b};
  const Token tokens[] = {7, 8};
  for (const size_t n : {2, 1, 2, 1}) {
    group.feed(std::span(both).first(n), std::span(tokens).first(n), nullptr);
  }
  const auto found = group.feed({both, 1}, {tokens, 1}, nullptr);
  std::span<const float> expected;
  for (int step = 0; step < 5; ++step) expected = alone.feed({tokens, 1}, nullptr);
  for (size_t at = 0; at < expected.size(); ++at) ASSERT_NEAR(found[at], expected[at], kMaxDelta);
}

TEST(AskTogether, AnswersAsSessionsDo) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const Context context = zip(Model::load(model_path(kSmolLm2)),
                              "The lighthouse at Kettle Point was built in 1878 by Anna Breck. It "
                              "stands 31 metres tall and is painted white. Its keeper is Tom Hale, "
                              "who climbs 164 steps every evening to light the lamp.",
                              {.budget = {.ratio = 0.7}, .self_check = false});
  std::vector<Question> questions;
  for (const char* text : {"When was the lighthouse built?", "Who built it?", "How tall is it?",
                           "Who is the keeper?", "What colour is it?"}) {
    questions.push_back({text, {.max_tokens = static_cast<int64_t>(4 + questions.size())}});
  }
  std::string streamed;
  questions[2].options.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  std::vector<size_t> order;
  const auto results = ask_together(
      context, questions, 3, [&](size_t number, const AskResult&) { order.push_back(number); });
  ASSERT_EQ(results.size(), questions.size());
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4}));
  for (size_t number = 0; number < questions.size(); ++number) {
    const Answer& answer = std::get<Answer>(results[number]);
    const Answer alone = Session(context).ask(questions[number].text, questions[number].options);
    // The first token comes from the same pass; later ones may differ where two are as likely.
    ASSERT_FALSE(answer.tokens.empty());
    EXPECT_EQ(answer.tokens[0], alone.tokens[0]);
    EXPECT_EQ(answer.prompt_tokens, alone.prompt_tokens);
    EXPECT_LE(answer.output_tokens, questions[number].options.max_tokens);
  }
  EXPECT_TRUE(streamed.starts_with(std::get<Answer>(results[2]).text));
}

TEST(AskTogether, AFailureBelongsToItsQuestion) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const Context context =
      zip(Model::load(model_path(kSmolLm2)), "A short note about boats.", {.self_check = false});
  std::vector<Question> questions(3, {"What is it about?", {.max_tokens = 3}});
  questions[0].options.max_tokens = -1;
  for (int word = 0; word < 9000; ++word) questions[2].text += " word";
  const auto results = ask_together(context, questions);
  EXPECT_EQ(std::get<Error>(results[0]).kind(), ErrorKind::kInvalidArgument);
  EXPECT_EQ(std::get<Answer>(results[1]).output_tokens, 3);
  EXPECT_EQ(std::get<Error>(results[2]).kind(), ErrorKind::kTooLong);
  EXPECT_THROW(ask_together(context, questions, 0), Error);
}

// An error of the caller's own comes back, and no result is told twice.
TEST(AskTogether, AThrowingCallbackEndsAll) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const Context context =
      zip(Model::load(model_path(kSmolLm2)), "A short note about boats.", {.self_check = false});
  std::vector<Question> questions(3, {"What is it about?", {.max_tokens = 6}});
  questions[1].options.max_tokens = 1;
  std::vector<size_t> told;
  const auto tell = [&](size_t number, const AskResult&) {
    told.push_back(number);
    throw Error(ErrorKind::kIo, "the caller cannot store it");
  };
  EXPECT_THROW(ask_together(context, questions, 3, tell), Error);
  EXPECT_EQ(told, std::vector<size_t>{1});
}

TEST(AskTogether, CancellingEndsAll) {
  CTXZIP_NEEDS_MODEL(kSmolLm2);
  const Context context =
      zip(Model::load(model_path(kSmolLm2)), "A short note about boats.", {.self_check = false});
  CancelToken cancel;
  std::vector<Question> questions(3, {"Tell me a long story.", {.max_tokens = 200}});
  for (Question& question : questions) question.options.cancel = &cancel;
  int pieces = 0;
  questions[1].options.on_text = [&](std::string_view) {
    if (++pieces == 3) cancel.cancel();
    return true;
  };
  for (const AskResult& result : ask_together(context, questions, 2)) {
    EXPECT_EQ(std::get<Answer>(result).stop_reason, StopReason::kCancelled);
  }
}

}  // namespace
}  // namespace ctxzip::test
