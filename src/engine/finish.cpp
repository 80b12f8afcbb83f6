#include "engine/finish.h"

#include "core/fail.h"
#include "core/memory.h"

namespace ctxzip {
namespace {

// Loss in nats per token from which answers suffer: random eviction's is far above, KVzip's below.
constexpr double kMuchLost = 0.2;

const char* name_of(ReconAttention attention) {
  return attention == ReconAttention::kFull ? "full" : "local";
}

const char* name_of(Schedule schedule) {
  return schedule == Schedule::kTwoPass ? "two-pass" : "streaming";
}

CtzMeta describe(const detail::ModelState& model, const ZipPlan& plan, const ZipOptions& options) {
  CtzMeta meta = describe_prompt(model, plan.layout, plan.context);
  meta.method = method_name(options.method);
  meta.allocation = allocation_name(options.allocation);
  meta.recon_attention = name_of(options.recon_attention);
  meta.schedule = name_of(options.schedule);
  meta.chunk_tokens = plan.chunk_tokens;
  meta.seed = options.seed;
  return meta;
}

}  // namespace

CtzMeta describe_prompt(const detail::ModelState& model, const PromptLayout& layout,
                        const std::vector<Token>& context) {
  CtzMeta meta;
  meta.model = model.fingerprint;
  meta.model_name = model.info.name;
  meta.prefix_tokens = layout.prefix;
  meta.context_tokens = context;
  meta.question_tokens = layout.question;
  meta.turn_tokens = layout.turn;
  meta.next_turn_tokens = layout.next_turn;
  meta.templated = layout.templated;
  return meta;
}

Context make_context(const Model& model, const ZipPlan& plan, const ZipOptions& options,
                     ContextRows rows, const std::optional<SelfCheck>& loss,
                     const RunFigures& figures) {
  CtzMeta meta = describe(*model.state(), plan, options);
  if (loss) {
    meta.delta_nll = loss->reconstruction;
    meta.delta_nll_probe = loss->held_out;
  }
  if (meta.delta_nll.value_or(0) > kMuchLost && options.notice) {
    options.notice(
        LogLevel::kWarning,
        fmt::format("this budget loses much of the text ({:+.2f} nats/token): keep more, "
                    "or name the loss that is allowed (quality budget)",
                    *meta.delta_nll));
  }
  ZipReport report = describe_context(meta, rows);
  report.prefill_s = figures.prefill;
  report.score_s = figures.score;
  report.check_s = figures.check;
  report.compact_s = figures.compact;
  report.peak_kv_bytes = figures.peak_kv_bytes;
  report.peak_rss_bytes = resident_memory().peak_bytes;
  return Context(std::make_shared<const detail::ContextState>(
      detail::ContextState{model, std::move(meta), std::move(rows), report}));
}

}  // namespace ctxzip
