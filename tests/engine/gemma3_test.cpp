// Gemma3-270M as it comes: hybrid attention on real weights, a base model without a template.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ctxzip/session.h"
#include "ctxzip/zip.h"
#include "engine/zipper.h"
#include "eval/llama_peer.h"
#include "select/select.h"
#include "support/engine_run.h"
#include "support/logits.h"
#include "support/oracle_attention.h"
#include "support/tiny_model.h"

namespace ctxzip::test {
namespace {

using Libllama = eval::LlamaPeer;

constexpr const char* kGemma3 = "gemma3-270m-q4_k_m.gguf";

std::string sample_text() {
  std::ifstream file(data_path("sample.txt"));
  return {std::istreambuf_iterator<char>(file), {}};
}

// The sample document, over and over.
std::vector<Token> sample_tokens(const Model& model, int64_t n) {
  const std::vector<Token> once = model.tokenize(sample_text());
  std::vector<Token> tokens;
  while (static_cast<int64_t>(tokens.size()) < n)
    tokens.insert(tokens.end(), once.begin(), once.end());
  tokens.resize(static_cast<size_t>(n));
  return tokens;
}

Context zip_tokens(const Model& model, int64_t n_tokens, double ratio) {
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model,
                plan_zip(*model.state(), model.state()->tokenizer.layout(std::nullopt, false),
                         sample_tokens(model, n_tokens), options),
                options);
  zipper.prefill();
  const KeepSet kept = zipper.select(Method::kKvzip, {.ratio = ratio}, Allocation::kGlobal);
  return zipper.take(Method::kKvzip, Allocation::kGlobal, kept);
}

// (n_tokens - skipped, n_vocab): the mean KL and agreement over the last rows of long prompts.
TEST(Gemma3, CloseToLibllamaOver1500Tokens) {
  CTXZIP_NEEDS_MODEL(kGemma3);
  constexpr int64_t kTokens = 1500;
  constexpr int64_t kPart = 250;  // logits of 262,144 tokens are large: compared part by part
  const std::string path = model_path(kGemma3);
  const Model model = Model::load(path, {.n_threads = 2});
  const std::vector<Token> tokens = sample_tokens(model, kTokens);
  Libllama plain(path, {.cache_type = GGML_TYPE_F16});
  Libllama flash(path, {.cache_type = GGML_TYPE_F16, .flash_attention = true});
  const SegmentTable nothing = segment_table(*model.state());
  TailRun ours(model, nothing, 0);
  double kl = 0;
  double noise = 0;
  double agreement = 0;
  for (int64_t first = 0; first < kTokens; first += kPart) {
    const auto part = std::span(tokens).subspan(static_cast<size_t>(first), kPart);
    const auto expected = plain.feed(part, kPart);
    const auto difference = compare_logits(expected, ours.feed(part, kPart), model.info().n_vocab);
    noise += compare_logits(expected, flash.feed(part, kPart), model.info().n_vocab).mean_kl;
    kl += difference.mean_kl;
    agreement += difference.top1_agreement;
  }
  constexpr double kParts = static_cast<double>(kTokens) / kPart;
  std::printf("mean KL %.3g (libllama against itself %.3g), top-1 agreement %.4f\n", kl / kParts,
              noise / kParts, agreement / kParts);
  EXPECT_LE(kl / kParts, std::max(1e-3, 1.5 * noise / kParts));
}

TEST(Gemma3, MaskedEqualsEvicted) {
  CTXZIP_NEEDS_MODEL(kGemma3);
  // As f32: rounded activations would turn last bits into visible steps.
  const std::string path = temp_path("gemma3-f32.gguf");
  dequantise_model(model_path(kGemma3), path);
  const Model model = Model::load(path, {.n_threads = 2, .f32_rows = true});
  const ZipOptions options = {.self_check = false};
  Zipper zipper(model, plan_zip(*model.state(), {}, sample_tokens(model, 700), options), options);
  zipper.prefill();
  const KeepSet kept = zipper.select(Method::kKvzip, {.ratio = 0.3}, Allocation::kGlobal);
  const auto question = sample_tokens(model, 24);
  std::vector<int32_t> rows(question.size());
  for (size_t at = 0; at < rows.size(); ++at) rows[at] = static_cast<int32_t>(at);
  OracleAttention oracle(zipper.full_rows(), &kept, attention_setup(*model.state()).shape);
  GraphRunner runner(*model.state());
  const auto masked = runner.run({question, 700, rows}, oracle, 0, {});
  const std::vector<float> expected(masked.begin(), masked.end());
  const Context context = zipper.take(Method::kKvzip, Allocation::kGlobal, kept);
  SegmentTable past = segment_table(*model.state());
  past.add(context.state()->rows);
  TailRun run(model, past, 700, 64);
  const auto difference = compare_logits(expected, run.feed(question, 24), model.info().n_vocab);
  std::printf("mean KL %.3g\n", difference.mean_kl);
  EXPECT_LE(difference.mean_kl, 1e-6);
  std::filesystem::remove(path);
}

TEST(Gemma3, LengthsAroundTwoWindowsZipAndAnswer) {
  CTXZIP_NEEDS_MODEL(kGemma3);
  const Model model = Model::load(model_path(kGemma3), {.n_threads = 2});
  const int64_t pair = 2 * 2 * model.info().head_dim;
  for (const int64_t n_tokens : {1023, 1025, 2049}) {
    const Context context = zip_tokens(model, n_tokens, 0.3);
    const ZipReport& report = context.report();
    EXPECT_EQ(report.context_tokens, n_tokens);
    EXPECT_EQ(report.pairs_total, 3 * n_tokens);
    EXPECT_EQ(report.kv_bytes_window, 15 * 511 * pair);
    EXPECT_EQ(report.kv_bytes_kept,
              (report.pairs_kept + 3 * report.prefix_tokens) * pair + report.kv_bytes_window);
    const Answer answer = Session(context).ask("The lighthouse", {.max_tokens = 8});
    EXPECT_GT(answer.output_tokens, 0);
    EXPECT_EQ(answer.context_tokens_prefilled, 0);
  }
}

TEST(Gemma3, ThreeChatTurnsProcessNewTokensOnly) {
  CTXZIP_NEEDS_MODEL(kGemma3);
  const Model model = Model::load(model_path(kGemma3), {.n_threads = 2});
  const Context context = zip_tokens(model, 1025, 0.3);
  Session session(context);
  std::vector<Token> first;
  for (const char* message : {"One.", "Two.", "Three."}) {
    const Answer answer = session.chat(message, {.max_tokens = 12});
    if (first.empty()) first = answer.tokens;
    EXPECT_LT(answer.prompt_tokens, 20);
    EXPECT_EQ(answer.context_tokens_prefilled, 0);
  }
  session.reset();
  EXPECT_EQ(session.chat("One.", {.max_tokens = 12}).tokens, first);
}

TEST(Gemma3, ATextWithoutATemplateIsZippedToThirtyPercent) {
  CTXZIP_NEEDS_MODEL(kGemma3);
  const Model model = Model::load(model_path(kGemma3), {.n_threads = 2});
  EXPECT_FALSE(model.info().has_chat_template);
  EXPECT_EQ(model.info().n_local_layer, 15);
  EXPECT_EQ(model.info().window, 512);
  const Context context = zip(model, sample_text(), {.budget = {.ratio = 0.3}});
  std::printf("delta_nll at 0.3: %.4f\n", *context.report().delta_nll);
  const auto answer = Session(context).ask("The museum opens at", {.max_tokens = 8});
  std::printf("answer: %s\n", answer.text.c_str());
  EXPECT_FALSE(answer.text.empty());
}

// Three pairs a token are all that this model has: it bears less eviction than others.
TEST(Gemma3, LosesLittleAtSeventyPercentWhereRandomLosesALot) {
  CTXZIP_NEEDS_MODEL(kGemma3);
  const Model model = Model::load(model_path(kGemma3), {.n_threads = 2});
  const auto loss = [&](Method method) {
    const Context context = zip(model, sample_text(), {.budget = {.ratio = 0.7}, .method = method});
    return *context.report().delta_nll;
  };
  const double kvzip = loss(Method::kKvzip);
  const double random = loss(Method::kRandom);
  std::printf("delta_nll at 0.7: kvzip %.4f, random %.4f\n", kvzip, random);
  EXPECT_LE(kvzip, 0.1);
  EXPECT_GE(random, 0.5);
}

}  // namespace
}  // namespace ctxzip::test
