#include "engine/rescore.h"

#include "core/fail.h"
#include "engine/context_state.h"
#include "engine/zipper.h"
#include "score/method_table.h"

namespace ctxzip {
namespace {

// The method of that name if it scores pairs.
Method scoring_method(const std::string& name) {
  for (const MethodInfo& info : zip_methods()) {
    if (info.name != name) continue;
    if (method_traits(info.method).source != ScoreSource::kHeads) return info.method;
  }
  fail(ErrorKind::kUnsupported, "method {} does not score pairs: there are no scores to show",
       name);
}

ZipOptions options_of(const CtzMeta& meta) {
  if (meta.recall) {
    fail(ErrorKind::kUnsupported,
         "a context under VestigeKV: its rows are ranked without scores, and none are evicted");
  }
  if (meta.schedule != "two-pass") {
    fail(ErrorKind::kUnsupported,
         "schedule {}: pairs were scored chunk by chunk over what was left of the text, so that "
         "scores of the whole text would be others; zip it with --schedule two-pass",
         meta.schedule);
  }
  ZipOptions options;
  options.method = scoring_method(meta.method);
  options.recon_attention =
      meta.recon_attention == "local" ? ReconAttention::kLocal : ReconAttention::kFull;
  options.chunk_tokens = meta.chunk_tokens;
  options.seed = meta.seed;
  options.allow_long = true;  // whatever its length, it was zipped
  options.self_check = false;
  return options;
}

}  // namespace

Scores rescore(const Context& context, const ProgressFn& progress, const CancelToken* cancel) {
  const CtzMeta& meta = context.state()->meta;
  ZipOptions options = options_of(meta);
  options.progress = progress;
  options.cancel = cancel;
  PromptLayout layout;
  layout.prefix = meta.prefix_tokens;
  layout.question = meta.question_tokens;
  layout.turn = meta.turn_tokens;
  ZipPlan plan =
      plan_zip(*context.model().state(), std::move(layout), meta.context_tokens, options);
  if (plan.too_short) {
    fail(ErrorKind::kUnsupported, "a context of {} tokens is kept whole: nothing scored it",
         plan.n_context());
  }
  Zipper zipper(context.model(), std::move(plan), options);
  zipper.prefill();
  return zipper.scores(options.method);
}

}  // namespace ctxzip
