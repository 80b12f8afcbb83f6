#include "ctxzip/zip.h"

#include <algorithm>

#include "core/fail.h"
#include "engine/prompts.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "select/select.h"

namespace ctxzip {
namespace {

// f32 activations of one token that a graph holds at once: residual, normed, q, k, v, attended,
// gate, up and their product (what ggml's allocator was seen to use).
int64_t activation_bytes(const Hyperparameters& hp) {
  return 4 * (4 * hp.n_embd + 3 * hp.n_ff + 2 * (hp.n_head + hp.n_kv_head) * hp.head_dim);
}

}  // namespace

ZipEstimate estimate_zip(const Model& model, std::string_view text, const ZipOptions& options) {
  const detail::ModelState& state = *model.state();
  const Hyperparameters& hp = state.hp;
  const ZipPlan plan = plan_zip(state, text, options);
  const int64_t n_positions = plan.n_positions();
  const int64_t pass =
      plan.chunk_tokens + longest_prompt(repeat_prompts(state.tokenizer, plan.layout));
  const int64_t pair_bytes = static_cast<int64_t>(global_shape(state).pair_size());

  ZipEstimate estimate;
  estimate.context_tokens = plan.n_context();
  estimate.prefix_tokens = plan.n_prefix();
  const int64_t n_global = hp.layers.n_global();
  estimate.kv_bytes_full =
      (n_positions * n_global + frozen_window_rows(hp.layers, n_positions) * hp.layers.n_local()) *
      hp.n_kv_head * pair_bytes;
  const int64_t widest = std::max(pass, std::min(options.batch_tokens, n_positions));
  estimate.peak_bytes =
      estimate.kv_bytes_full + widest * (activation_bytes(hp) + hp.n_kv_head * pair_bytes) +
      n_global * hp.n_kv_head * plan.n_context() * 4 + kProbeTokens * hp.n_vocab * 4;
  const double weights = static_cast<double>(model.info().n_parameters - hp.n_vocab * hp.n_embd);
  const double n = static_cast<double>(n_positions);
  const double per_row = 4.0 * static_cast<double>(n_global * hp.n_head * hp.head_dim);
  const bool scored = options.method == Method::kKvzip && !plan.too_short;
  estimate.flops = 2 * weights * n * (scored ? 2 : 1) + per_row * n * n * (scored ? 1.5 : 0.5);
  return estimate;
}

Context zip(const Model& model, std::string_view text, const ZipOptions& options) {
  if (options.schedule == Schedule::kStreaming) {
    return StreamZipper(model, plan_zip(*model.state(), text, options), options).run();
  }
  Zipper zipper(model, plan_zip(*model.state(), text, options), options);
  zipper.prefill();
  KeepSet kept = zipper.select(options.method, options.budget, options.allocation);
  return zipper.take(options.method, options.allocation, std::move(kept));
}

}  // namespace ctxzip
