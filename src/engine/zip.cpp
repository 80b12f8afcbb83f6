#include "ctxzip/zip.h"

#include <algorithm>

#include "core/fail.h"
#include "engine/prompts.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "score/method_table.h"
#include "select/select.h"

namespace ctxzip {
namespace {

// f32 activations of one token that a graph holds at once: residual, normed, q, k, v, attended,
// gate, up and their product (what ggml's allocator was seen to use).
int64_t activation_bytes(const Hyperparameters& hp) {
  return 4 * (4 * hp.n_embd + 3 * hp.n_ff + 2 * (hp.n_head + hp.n_kv_head) * hp.head_dim);
}

// Share of the context's global rows that is held at most, and that a token attends to on average.
struct HeldRows {
  double peak = 1;
  double attended = 0.5;
};

HeldRows held_rows(const ZipPlan& plan, const ZipOptions& options, const ContextSize& size) {
  if (options.schedule == Schedule::kTwoPass || plan.too_short) return {};
  const auto total = static_cast<double>(size.heads() * size.n_context);
  const double kept = static_cast<double>(pairs_for_budget(options.budget, size)) / total;
  const double chunk =
      static_cast<double>(plan.chunk_tokens) / static_cast<double>(plan.n_context());
  return {.peak = std::min(1.0, kept + chunk), .attended = std::min(0.5, (kept + chunk) / 2)};
}

// Share of the context that scoring feeds to the model.
double fed_share(const MethodTraits& method) {
  if (method.source != ScoreSource::kReconstruction) return 0;
  switch (method.recon.input) {
    case ReconInput::kFull:
      return 1;
    case ReconInput::kFirst:
    case ReconInput::kLast:
      return kPartialInput;
    case ReconInput::kPrompt:
      return 0;
  }
  return 1;
}

}  // namespace

ZipEstimate estimate_zip(const Model& model, std::string_view text, const ZipOptions& options) {
  const detail::ModelState& state = *model.state();
  const Hyperparameters& hp = state.hp;
  const ZipPlan plan = plan_zip(state, text, options);
  const ContextSize size = context_size(state, plan, options);
  const HeldRows held = held_rows(plan, options, size);
  const int64_t n_positions = plan.n_positions();
  const MethodTraits& method = method_traits(options.method);
  const int64_t pass = plan.chunk_tokens + longest_prompt(repeat_prompts(
                                               state.tokenizer, plan.layout, method.recon.wording));
  const int64_t pair_bytes = static_cast<int64_t>(global_shape(state).pair_size());

  ZipEstimate estimate;
  estimate.context_tokens = plan.n_context();
  estimate.prefix_tokens = plan.n_prefix();
  const int64_t global_bytes = n_positions * size.heads() * pair_bytes;
  estimate.kv_bytes_full = global_bytes + size.window_bytes;
  const int64_t widest = std::max(pass, std::min(options.batch_tokens, n_positions));
  estimate.peak_bytes = static_cast<int64_t>(held.peak * static_cast<double>(global_bytes)) +
                        size.window_bytes +
                        widest * (activation_bytes(hp) + hp.n_kv_head * pair_bytes) +
                        size.heads() * plan.n_context() * static_cast<int64_t>(sizeof(float)) +
                        kProbeTokens * hp.n_vocab * static_cast<int64_t>(sizeof(float));
  const double weights = static_cast<double>(model.info().n_parameters - hp.n_vocab * hp.n_embd);
  const double n = static_cast<double>(n_positions);
  const double per_row = 4.0 * static_cast<double>(hp.layers.n_global() * hp.n_head * hp.head_dim);
  const double scored = plan.too_short ? 0 : fed_share(method);
  const bool local =
      options.recon_attention == ReconAttention::kLocal || options.schedule == Schedule::kStreaming;
  const double scored_rows = local ? static_cast<double>(plan.chunk_tokens) : n;
  estimate.flops = 2 * weights * n * (1 + scored) + per_row * n * n * held.attended +
                   scored * per_row * n * scored_rows;
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
