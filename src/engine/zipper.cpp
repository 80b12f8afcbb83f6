#include "engine/zipper.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "engine/passes.h"
#include "engine/prompts.h"
#include "score/kvzip.h"
#include "score/random.h"

namespace ctxzip {
namespace {

constexpr int kQualitySteps = 7;  // of a bisection over the share kept: within 1%

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

void Zipper::prefill() {
  const Stopwatch watch(seconds_.prefill);
  std::vector<Token> tokens = plan_.layout.prefix;
  tokens.insert(tokens.end(), plan_.context.begin(), plan_.context.end());
  const int64_t n_tokens = static_cast<int64_t>(tokens.size());
  report_progress(Stage::kPrefill, 0, n_tokens);
  prefill_rows(state(), *runner_, segment_table(state()), tokens, 0, {full_, window_, states_},
               options_.batch_tokens, options_.cancel,
               [&](int64_t done) { report_progress(Stage::kPrefill, done, n_tokens); });
}

const Scores& Zipper::scores(Method method) {
  CHECK(full_.n_rows() == plan_.n_positions());
  const auto found = scores_.find(method);
  if (found != scores_.end()) return found->second;
  const Stopwatch watch(seconds_.score);
  const KvShape& shape = full_.shape();
  Scores scores;
  if (method == Method::kRandom) {
    scores = random_scores(shape.n_layer, shape.n_kv_head, plan_.n_context(), options_.seed);
  } else {
    scores = start_scores(shape.n_layer, shape.n_kv_head, plan_.n_context());
    score_by_reconstruction(scores);
    finish_scores(scores);
  }
  return scores_.emplace(method, std::move(scores)).first->second;
}

void Zipper::score_by_reconstruction(Scores& scores) {
  const RepeatPrompts prompts = repeat_prompts(state().tokenizer, plan_.layout);
  report_progress(Stage::kScore, 0, plan_.n_context());
  for (const ReconstructionPass& pass :
       plan_reconstruction(prompts, plan_.context, plan_.chunk_tokens)) {
    const PassAttention over = pass_attention(full_rows(), pass, options_.recon_attention, scores);
    const RunControl control = {
        .cancel = options_.cancel, .on_fraction = [&](double share) {
          const auto done =
              static_cast<int64_t>(share * static_cast<double>(pass.end - pass.begin));
          report_progress(Stage::kScore, pass.begin + done, plan_.n_context());
        }};
    run_pass(state(), *runner_, over.past, over.own_place, &over.sink,
             {pass.input, plan_.n_positions(), {}}, control);
    report_progress(Stage::kScore, pass.end, plan_.n_context());
  }
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
    const Stopwatch watch(seconds_.check);
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
  return select_within(scores(method), n_keep, allocation, budget, size);
}

KeepSet Zipper::search_quality(Method method, double bound, Allocation allocation) {
  if (probes_.empty()) fail(ErrorKind::kInvalidArgument, "a quality budget needs the self-check");
  const Scores& all_scores = scores(method);
  const double base = full_check().reconstruction;
  const int64_t total = all_scores.pairs();
  int64_t low = 0;       // too few
  int64_t high = total;  // enough: nothing is lost
  KeepSet best = keep_all(all_scores.n_layer, all_scores.n_kv_head, all_scores.n_context);
  for (int step = 0; step < kQualitySteps; ++step) {
    const Stopwatch watch(seconds_.check);
    report_progress(Stage::kCheck, step, kQualitySteps);
    // Sizes of interest span orders of magnitude: halve the ratio first, then narrow down.
    const int64_t middle = low == 0 ? high / 2 : low + (high - low) / 2;
    KeepSet candidate = select_pairs(all_scores, std::max<int64_t>(1, middle), allocation);
    SegmentTable kept = segment_table(state());
    kept.add(full_, plan_.n_prefix(), candidate);
    kept.add_window(frozen_window());
    const double nll = sum_nll(state(), *runner_, kept, plan_.n_positions(), probes_.reconstruction,
                               options_.cancel)
                           .mean();
    if (nll - base <= bound) {
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
    const Stopwatch watch(seconds_.check);
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
  return make_context(model_, plan_, used, std::move(rows), loss, seconds_);
}

Context Zipper::take(Method method, Allocation allocation, KeepSet kept) {
  if (!probes_.empty()) full_check();
  ZippedRows rows;
  {
    const Stopwatch watch(seconds_.compact);
    report_progress(Stage::kCompact, 0, 1);
    rows = compact(full_, plan_.n_prefix(), std::move(kept), stored_type(options_));
    report_progress(Stage::kCompact, 1, 1);
  }
  return finish(method, allocation, std::move(rows));
}

Context Zipper::copy(Method method, Allocation allocation, const KeepSet& kept) {
  if (!probes_.empty()) full_check();
  ZippedRows rows;
  {
    const Stopwatch watch(seconds_.compact);
    rows = compact_copy(full_, plan_.n_prefix(), kept, stored_type(options_));
  }
  return finish(method, allocation, std::move(rows));
}

}  // namespace ctxzip
