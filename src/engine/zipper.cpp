#include "engine/zipper.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "core/stopwatch.h"
#include "ctxzip/heads.h"
#include "engine/passes.h"
#include "engine/prompts.h"
#include "score/branch_sigma.h"
#include "score/expected_attention.h"
#include "score/knorm.h"
#include "score/output_norms.h"
#include "score/prefill_attention.h"
#include "score/random.h"
#include "score/streaming_llm.h"
#include "select/heads.h"

namespace ctxzip {
namespace {

constexpr int kQualitySteps = 7;  // of a bisection over the share kept: within 1%

// Whether scores are made from what a prefill notes down.
bool is_observed(const MethodTraits& method) {
  return method.source == ScoreSource::kPrefillAttention ||
         method.source == ScoreSource::kQueryMoments;
}

}  // namespace

Zipper::Zipper(const Model& model, ZipPlan plan, const ZipOptions& options)
    : model_(model),
      plan_(std::move(plan)),
      options_(options),
      runner_(std::make_unique<GraphRunner>(*model.state())),
      full_(global_shape(*model.state()), plan_.n_positions()),
      window_(
          make_window_store(*model.state(), std::min(options.batch_tokens, plan_.n_positions()))),
      states_(first_states(*model.state())) {
  if (options_.self_check && !plan_.too_short) {
    probes_ = self_check_probes(state().tokenizer, plan_.layout, plan_.context);
  }
}

void Zipper::report_progress(Stage stage, int64_t done, int64_t total) const {
  if (options_.progress) options_.progress(stage, done, total);
}

void Zipper::run_prefill(Stage stage, const ScoreSink* score, const QuerySink* queries) {
  std::vector<Token> tokens = plan_.layout.prefix;
  tokens.insert(tokens.end(), plan_.context.begin(), plan_.context.end());
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  report_progress(stage, 0, n_tokens);
  full_.truncate(0);
  window_.truncate(0);
  states_.set(first_states(state()));
  prefill_rows(state(), *runner_, segment_table(state()), tokens, 0,
               {full_, window_, states_, score, queries}, options_.batch_tokens, options_.cancel,
               [&](int64_t done) { report_progress(stage, done, n_tokens); });
  figures_.peak_kv_bytes = full_.kv_bytes();
}

void Zipper::prefill() {
  const Stopwatch watch(figures_.prefill);
  const MethodTraits& method = method_traits(options_.method);
  if (!is_observed(method) || plan_.too_short)
    return run_prefill(Stage::kPrefill, nullptr, nullptr);
  scores_.emplace(method.scores_of, observed_scores(method.scores_of, Stage::kPrefill));
}

Scores Zipper::observed_scores(Method method, Stage stage) {
  const int64_t n_prefix = plan_.n_prefix();
  const int64_t n_context = plan_.n_context();
  if (method == Method::kExpectedAttention) {
    QueryMoments moments = start_moments(state(), n_prefix, n_context);
    const QuerySink sink = moments.sink();
    run_prefill(stage, nullptr, &sink);
    return expected_attention_scores(state(), moments, full_, n_prefix, n_context);
  }
  const KvShape& shape = full_.shape();
  Scores scores = start_prefill_scores(method, shape.n_layer, shape.n_kv_head, n_context);
  const ScoreSink sink = prefill_sink(method, n_prefix, scores);
  run_prefill(stage, &sink, nullptr);
  finish_prefill_scores(method, state().hp.group(), scores);
  return scores;
}

const Scores& Zipper::scores(Method method) {
  CHECK(full_.n_rows() == plan_.n_positions());
  const MethodTraits& traits = method_traits(method);
  method = traits.scores_of;
  const auto found = scores_.find(method);
  if (found != scores_.end()) return found->second;
  const Stopwatch watch(figures_.score);
  Scores scores;
  if (traits.source == ScoreSource::kReconstruction) {
    scores = reconstruction_scores(traits.recon);
  } else if (is_observed(traits)) {
    frozen_window();  // the windows are made again, but nobody needs them any more
    scores = observed_scores(method, Stage::kScore);
    window_.truncate(0);
  } else {
    scores = place_scores(method);
  }
  return scores_.emplace(method, std::move(scores)).first->second;
}

Scores Zipper::place_scores(Method method) const {
  const KvShape& shape = full_.shape();
  const int64_t n_context = plan_.n_context();
  if (method == Method::kRandom) {
    return random_scores(shape.n_layer, shape.n_kv_head, n_context, options_.seed);
  }
  if (method == Method::kStreamingLlm) {
    return streaming_llm_scores(shape.n_layer, shape.n_kv_head, n_context, plan_.n_prefix());
  }
  if (method_traits(method).source == ScoreSource::kUnrotatedRows) {
    const RowPart part = method == Method::kSigma          ? RowPart::kBranch
                         : method == Method::kSigmaContent ? RowPart::kContent
                                                           : RowPart::kWhole;
    return sigma_scores(full_, state().hp.latent.content, part, kSigmaBlockRows, plan_.n_prefix(),
                        n_context);
  }
  CHECK(method == Method::kKnorm);
  Scores scores = filled_scores(shape.n_layer, shape.n_kv_head, n_context, 0);
  knorm_scores(full_, plan_.n_prefix(), 0, n_context, scores);
  return scores;
}

Scores Zipper::reconstruction_scores(const ReconVariant& variant) {
  const RepeatPrompts prompts = repeat_prompts(state().tokenizer, plan_.layout, variant.wording);
  const KvShape& shape = full_.shape();
  const int64_t n_context = plan_.n_context();
  Scores scores = start_scores(shape.n_layer, shape.n_kv_head, n_context);
  std::vector<float> value_logs;
  if (variant.score == ReconScore::kNormalised) {
    value_logs.resize(static_cast<size_t>(shape.n_layer * state().hp.n_head * n_context));
    output_norm_logs(state(), full_, plan_.n_prefix(), 0, n_context, n_context, value_logs);
  }
  report_progress(Stage::kScore, 0, n_context);
  const std::vector<ReconstructionPass> passes =
      plan_reconstruction(prompts, plan_.context, plan_.chunk_tokens, variant.input);
  if (passes.front().input.empty()) {
    fail(ErrorKind::kUnsupported, "the model has no tokenizer: there is no prompt to score with");
  }
  int64_t n_fed = 0;
  for (const ReconstructionPass& pass : passes) n_fed += static_cast<int64_t>(pass.input.size());
  int64_t done = 0;
  for (const ReconstructionPass& pass : passes) {
    PassAttention over =
        pass_attention(full_rows(), pass, options_.recon_attention, scores, variant.score,
                       value_logs.empty() ? nullptr : value_logs.data());
    if (!variant.prompt_queries) over.sink.first_query = pass.n_prompt;
    const auto n = static_cast<int64_t>(pass.input.size());
    const RunControl control = {
        .cancel = options_.cancel, .on_fraction = [&](double share) {
          const auto now = done + static_cast<int64_t>(share * static_cast<double>(n));
          report_progress(Stage::kScore, now * n_context / n_fed, n_context);
        }};
    run_pass(state(), *runner_, over.past, over.own_place, &over.sink,
             {pass.input, plan_.n_positions(), {}}, control);
    done += n;
    report_progress(Stage::kScore, done * n_context / n_fed, n_context);
  }
  finish_scores(scores, variant.score);
  return scores;
}

const FrozenLayers& Zipper::frozen_window() {
  if (!frozen_window_) {
    CHECK(full_.n_rows() == plan_.n_positions());
    frozen_window_ = {freeze_window(window_, state().hp.layers, plan_.n_positions()),
                      states_.now()};
    window_.truncate(0);
  }
  return *frozen_window_;
}

const SelfCheck& Zipper::full_check() {
  if (!full_check_) {
    const Stopwatch watch(figures_.check);
    SegmentTable all = segment_table(state());
    all.add(full_, 0, full_.n_rows());
    all.add_window(frozen_window());
    full_check_ =
        run_self_check(state(), *runner_, all, plan_.n_positions(), probes_, options_.cancel);
  }
  return *full_check_;
}

KeepSet Zipper::select(Method method, const Budget& budget, Allocation allocation) {
  const KvShape& shape = full_.shape();
  if (plan_.too_short) return keep_all(shape.n_layer, shape.n_kv_head, plan_.n_context());
  if (budget.quality) return search_quality(method, *budget.quality, allocation);
  const ContextSize size = context_size(state(), plan_, options_);
  const int64_t n_keep = pairs_for_budget(budget, size);
  if (n_keep == size.heads() * plan_.n_context() && !budget.size_bytes) {
    return keep_all(shape.n_layer, shape.n_kv_head, plan_.n_context());
  }
  return select_within([&](int64_t n) { return keep(method, n, allocation); }, n_keep, budget,
                       size);
}

KeepSet Zipper::keep(Method method, int64_t n_keep, Allocation allocation) {
  if (method_traits(method).source == ScoreSource::kHeads) {
    const KvShape& shape = full_.shape();
    CHECK(options_.heads != nullptr);
    return select_heads(
        {.n_layer = shape.n_layer,
         .n_kv_head = shape.n_kv_head,
         .n_context = plan_.n_context(),
         .n_prefix = plan_.n_prefix(),
         .structure = method == Method::kHeadsDuo ? HeadStructure::kDuo : HeadStructure::kDrop},
        options_.heads->values, n_keep);
  }
  return select_pairs(scores(method), n_keep, allocation, method_traits(method).rule);
}

KeepSet Zipper::search_quality(Method method, double bound, Allocation allocation) {
  if (probes_.empty()) fail(ErrorKind::kInvalidArgument, "a quality budget needs the self-check");
  const KvShape& shape = full_.shape();
  const SelfCheck base = full_check();
  const int64_t total = shape.n_layer * shape.n_kv_head * plan_.n_context();
  int64_t low = 0;       // too few
  int64_t high = total;  // enough: nothing is lost
  KeepSet best = keep_all(shape.n_layer, shape.n_kv_head, plan_.n_context());
  for (int step = 0; step < kQualitySteps; ++step) {
    const Stopwatch watch(figures_.check);
    report_progress(Stage::kCheck, step, kQualitySteps);
    // Sizes of interest span orders of magnitude: halve the ratio first, then narrow down.
    const int64_t middle = low == 0 ? high / 2 : low + (high - low) / 2;
    KeepSet candidate = keep(method, std::max<int64_t>(1, middle), allocation);
    SegmentTable kept = segment_table(state());
    kept.add(full_, plan_.n_prefix(), candidate);
    kept.add_window(frozen_window());
    const SelfCheck now =
        run_self_check(state(), *runner_, kept, plan_.n_positions(), probes_, options_.cancel);
    const double loss =
        std::max(now.reconstruction - base.reconstruction, now.held_out - base.held_out);
    if (loss <= bound) {
      high = middle;
      best = std::move(candidate);
    } else {
      low = middle;
    }
  }
  report_progress(Stage::kCheck, kQualitySteps, kQualitySteps);
  return best;
}

Context Zipper::finish(Method method, Allocation allocation, ZippedRows kept) {
  const FrozenLayers& frozen = frozen_window();
  ContextRows rows{.layers = state().hp.layers,
                   .global = std::move(kept),
                   .local = frozen.window,
                   .states = frozen.states};
  std::optional<SelfCheck> loss;
  if (!probes_.empty()) {
    const Stopwatch watch(figures_.check);
    SegmentTable all = segment_table(state());
    all.add(rows);
    const SelfCheck check =
        run_self_check(state(), *runner_, all, plan_.n_positions(), probes_, options_.cancel);
    loss = SelfCheck{.reconstruction = check.reconstruction - full_check_->reconstruction,
                     .held_out = check.held_out - full_check_->held_out};
  }
  ZipOptions used = options_;
  used.method = method;
  used.allocation = allocation;
  return make_context(model_, plan_, used, std::move(rows), loss, figures_);
}

Context Zipper::take(Method method, Allocation allocation, KeepSet kept) {
  if (!probes_.empty()) full_check();
  ZippedRows rows;
  {
    const Stopwatch watch(figures_.compact);
    report_progress(Stage::kCompact, 0, 1);
    rows = compact(full_, plan_.n_prefix(), std::move(kept), stored_type(options_.kv));
    report_progress(Stage::kCompact, 1, 1);
  }
  return finish(method, allocation, std::move(rows));
}

Context Zipper::copy(Method method, Allocation allocation, const KeepSet& kept,
                     std::optional<KvType> kv) {
  if (!probes_.empty()) full_check();
  ZippedRows rows;
  {
    const Stopwatch watch(figures_.compact);
    rows = compact_copy(full_, plan_.n_prefix(), kept, stored_type(kv.value_or(options_.kv)));
  }
  return finish(method, allocation, std::move(rows));
}

}  // namespace ctxzip
