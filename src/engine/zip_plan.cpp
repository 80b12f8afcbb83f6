#include "engine/zip_plan.h"

#include <algorithm>

#include "cache/context_rows.h"
#include "core/fail.h"
#include "ctxzip/heads.h"
#include "engine/document_text.h"
#include "engine/graph_runner.h"
#include "engine/prompts.h"
#include "score/method_table.h"

namespace ctxzip {
namespace {

constexpr int64_t kShortestChunk = 256;

void notice(const ZipOptions& options, std::string_view text) {
  if (options.notice) options.notice(LogLevel::kWarning, text);
}

std::string streaming_methods() {
  std::string names;
  for (const MethodInfo& info : zip_methods()) {
    if (!method_traits(info.method).streams) continue;
    names += (names.empty() ? "" : ", ") + std::string(info.name);
  }
  return names;
}

void check_options(const ZipOptions& options) {
  const Budget& budget = options.budget;
  const int n_budgets = budget.ratio.has_value() + budget.keep_tokens.has_value() +
                        budget.size_bytes.has_value() + budget.quality.has_value();
  if (n_budgets > 1) {
    fail(ErrorKind::kInvalidArgument,
         "{} budgets are set: expected one of ratio, keep, size, quality", n_budgets);
  }
  if (budget.ratio && !(*budget.ratio > 0 && *budget.ratio <= 1)) {
    fail(ErrorKind::kInvalidArgument, "a ratio of {}: expected more than 0 and at most 1",
         *budget.ratio);
  }
  if (budget.quality && !(*budget.quality >= 0 && *budget.quality <= 100)) {
    fail(ErrorKind::kInvalidArgument, "a quality of {}: expected 0 to 100 nats per token",
         *budget.quality);
  }
  if (budget.quality && options.schedule == Schedule::kStreaming) {
    fail(ErrorKind::kInvalidArgument,
         "a quality budget is searched over the whole cache: it needs the two-pass schedule");
  }
  if (options.schedule == Schedule::kStreaming && !method_traits(options.method).streams) {
    fail(ErrorKind::kInvalidArgument,
         "method {} needs the two-pass schedule: with the streaming schedule work {}",
         method_name(options.method), streaming_methods());
  }
  if (method_traits(options.method).source == ScoreSource::kHeads && options.heads == nullptr) {
    fail(ErrorKind::kInvalidArgument,
         "method {} needs head scores: give a file that `ctxzip heads` made (--heads)",
         method_name(options.method));
  }
  if (options.chunk_tokens < 1 || options.batch_tokens < 1) {
    fail(ErrorKind::kInvalidArgument, "chunks of {} and batches of {} tokens: expected at least 1",
         options.chunk_tokens, options.batch_tokens);
  }
}

void check_heads(const HeadScores& heads, const detail::ModelState& model) {
  if (heads.model_fingerprint != model.info.fingerprint) {
    fail(ErrorKind::kMismatch,
         "head scores of another model: fingerprint {} ({}), this model's is {} ({}); measure them "
         "with `ctxzip heads`",
         heads.model_fingerprint, heads.model_name, model.info.fingerprint, model.info.name);
  }
  const std::vector<int64_t>& layers = model.hp.layers.global_layers();
  if (heads.layers != layers || heads.n_kv_head != model.hp.n_kv_head ||
      heads.values.size() != layers.size() * static_cast<size_t>(heads.n_kv_head)) {
    fail(ErrorKind::kMismatch, "head scores of {} layers with {} heads: expected {} with {}",
         heads.layers.size(), heads.n_kv_head, layers.size(), model.hp.n_kv_head);
  }
}

// Latent attention has one row for keys and values, in a space of its own.
void refuse_quantised(const detail::ModelState& model, const ZipOptions& options) {
  if (model.hp.latent.content == 0 || options.kv == KvType::kF16) return;
  fail(ErrorKind::kUnsupported,
       "rows of latent attention (architecture '{}') are not quantised: use f16 rows",
       model.hp.architecture);
}

// The passes start at the end of the context, so context, prompt and chunk share the trained
// length.
int64_t fit_chunk(const detail::ModelState& model, const ZipPlan& plan, const ZipOptions& options) {
  const int64_t n_train = model.hp.n_ctx_train;
  const int64_t wanted = std::min(options.chunk_tokens, plan.n_context());
  const RepeatWording wording = method_traits(options.method).recon.wording;
  const int64_t prompt = longest_prompt(repeat_prompts(model.tokenizer, plan.layout, wording));
  const int64_t room = n_train - plan.n_positions() - prompt;
  if (room >= wanted || options.allow_long) return wanted;
  if (room < kShortestChunk) {
    fail(ErrorKind::kTooLong,
         "the text has {} tokens, but at most {} fit: the model is trained for {}, of which the "
         "prompt's head takes {} and scoring at least {}; split the text, or let zip or heads go "
         "past "
         "the trained length (--allow-long)",
         plan.n_context(),
         std::max<int64_t>(0, n_train - plan.n_prefix() - kShortestChunk - prompt), n_train,
         plan.n_prefix(), kShortestChunk + prompt);
  }
  notice(
      options,
      fmt::format("chunks of {} tokens instead of {}: the trained length of {} leaves no more room",
                  room, wanted, n_train));
  return room;
}

}  // namespace

void check_method(const detail::ModelState& model, Method which) {
  const Hyperparameters& hp = model.hp;
  const MethodTraits& method = method_traits(which);
  const bool latent = hp.latent.content > 0;
  if (method.source == ScoreSource::kUnrotatedRows && hp.rotary) {
    fail(ErrorKind::kUnsupported,
         "method {} ranks rows without rotation (kimi-linear, granitehybrid without it): "
         "architecture '{}' has rotated rows; use another method",
         method.info.name, hp.architecture);
  }
  if (method.source == ScoreSource::kUnrotatedRows && !latent && which != Method::kSigma) {
    fail(ErrorKind::kUnsupported,
         "method {} compares the parts of latent rows without rotation (kimi-linear): architecture "
         "'{}' has no latent rows; use sigma or another method",
         method.info.name, hp.architecture);
  }
  if (latent && (method.source == ScoreSource::kQueryMoments ||
                 method.recon.score == ReconScore::kNormalised)) {
    fail(ErrorKind::kUnsupported,
         "method {} needs keys and values of heads: latent attention (architecture '{}') has none",
         method.info.name, hp.architecture);
  }
}

ContextSize context_size(const detail::ModelState& model, const ZipPlan& plan,
                         const ZipOptions& options) {
  const LayerMap& layers = model.hp.layers;
  ContextSize size = {
      .stored = global_shape(model), .n_context = plan.n_context(), .n_prefix = plan.n_prefix()};
  size.window_bytes = layers.n_local() * size.stored.n_kv_head *
                      frozen_window_rows(layers, plan.n_positions()) *
                      static_cast<int64_t>(size.stored.pair_size());
  size.stored.row_type = stored_type(options.kv).value_or(size.stored.row_type);
  return size;
}

std::optional<RowType> stored_type(KvType kv) {
  switch (kv) {
    case KvType::kF16:
      return std::nullopt;
    case KvType::kQ8:
      return RowType::kQ8;
    case KvType::kQ4:
      return RowType::kQ4;
  }
  return std::nullopt;
}

ZipPlan plan_zip(const detail::ModelState& model, std::string_view text,
                 const ZipOptions& options) {
  check_options(options);
  const DocumentText document = normalise_document(text);
  if (document.n_replaced > 0) {
    notice(options,
           fmt::format("{} invalid UTF-8 sequences were replaced by U+FFFD", document.n_replaced));
  }
  if (document.text.empty())
    fail(ErrorKind::kInvalidArgument, "the text is empty: there is nothing to zip");
  return plan_zip(model, model.tokenizer.layout(options.system, /*think=*/false),
                  model.tokenizer.encode_plain(document.text), options);
}

ZipPlan plan_zip(const detail::ModelState& model, PromptLayout layout, std::vector<Token> context,
                 const ZipOptions& options) {
  check_options(options);
  check_method(model, options.method);
  refuse_quantised(model, options);
  if (context.empty())
    fail(ErrorKind::kInvalidArgument, "the context has no tokens: there is nothing to zip");
  if (options.heads != nullptr) check_heads(*options.heads, model);
  ZipPlan plan{.layout = std::move(layout), .context = std::move(context)};
  plan.chunk_tokens = fit_chunk(model, plan, options);
  plan.too_short = plan.n_context() < kShortestCompressed;
  if (plan.too_short) {
    notice(options,
           fmt::format("a text below {} tokens (this has {}) is not compressed: kept whole",
                       kShortestCompressed, plan.n_context()));
  }
  return plan;
}

}  // namespace ctxzip
