#include "engine/stream_zip.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/fail.h"
#include "core/stopwatch.h"
#include "engine/passes.h"
#include "engine/prompts.h"
#include "score/knorm.h"
#include "score/method_table.h"
#include "score/output_norms.h"
#include "score/random.h"
#include "score/streaming_llm.h"

namespace ctxzip {
namespace {

// Until the last chunk this share more than the budget is kept: pairs of early chunks compete with
// those of later ones before they are gone.
constexpr double kSlack = 0.05;

constexpr float kLowestHeld = std::numeric_limits<float>::lowest();

int64_t longest_chunk(const ZipPlan& plan) {
  return plan.n_prefix() + std::min(plan.chunk_tokens, plan.n_context());
}

// Scores of context tokens [begin, end).
void copy_scores(const Scores& from, int64_t begin, int64_t end, Scores& to) {
  for (int64_t head = 0; head < from.n_layer * from.n_kv_head; ++head) {
    const int64_t start = head * from.n_context;
    std::copy(from.values.begin() + start + begin, from.values.begin() + start + end,
              to.values.begin() + start + begin);
  }
}

// The lowest score is for pairs that are gone or not read yet: those of positions [begin, end),
// which are there, stay above it whatever they were given.
void raise_scores(int64_t begin, int64_t end, Scores& scores) {
  for (int64_t head = 0; head < scores.n_layer * scores.n_kv_head; ++head) {
    float* values = scores.values.data() + head * scores.n_context;
    for (int64_t row = begin; row < end; ++row) {
      if (!(values[row] >= kLowestHeld)) values[row] = kLowestHeld;
    }
  }
}

// Pairs of positions before `end` that are gone cannot come back: they get the lowest score.
void forget_dropped(const KeepSet& kept, int64_t end, Scores& scores) {
  for (size_t head = 0; head < kept.rows.size(); ++head) {
    float* values = scores.values.data() + head * static_cast<size_t>(scores.n_context);
    auto next = kept.rows[head].begin();
    for (int64_t row = 0; row < end; ++row) {
      if (next != kept.rows[head].end() && *next == row) {
        ++next;
      } else {
        values[row] = -INFINITY;
      }
    }
  }
}

}  // namespace

StreamZipper::StreamZipper(const Model& model, ZipPlan plan, const ZipOptions& options)
    : model_(model),
      plan_(std::move(plan)),
      options_(options),
      size_(context_size(state(), plan_, options)),
      runner_(std::make_unique<GraphRunner>(state())),
      prompts_(repeat_prompts(state().tokenizer, plan_.layout,
                              method_traits(options.method).recon.wording)),
      chunk_(global_shape(state()), longest_chunk(plan_)),
      window_(make_window_store(state(), std::min(options.batch_tokens, longest_chunk(plan_)))),
      states_(first_states(state())),
      survivors_(global_shape(state()), plan_.n_prefix(), plan_.n_context()) {
  if (options_.recon_attention == ReconAttention::kFull) {
    fail(ErrorKind::kInvalidArgument,
         "a streaming zip has no whole text that scoring could attend to: local attention or the "
         "two-pass schedule is expected");
  }
  const KvShape& shape = survivors_.shape();
  scores_ = start_scores(shape.n_layer, shape.n_kv_head, plan_.n_context());
  if (options_.self_check && !plan_.too_short) {
    probes_ = self_check_probes(state().tokenizer, plan_.layout, plan_.context);
  }
  n_keep_ = plan_.too_short ? scores_.pairs() : pairs_for_budget(options_.budget, size_);
}

void StreamZipper::report_progress(Stage stage, int64_t done) const {
  if (options_.progress) options_.progress(stage, done, plan_.n_context());
}

void StreamZipper::prefill(int64_t begin, int64_t end) {
  const Stopwatch watch(figures_.prefill);
  std::vector<Token> tokens;
  if (begin == 0) tokens = plan_.layout.prefix;
  tokens.insert(tokens.end(), plan_.context.begin() + begin, plan_.context.begin() + end);
  const int64_t first_position = begin == 0 ? 0 : plan_.n_prefix() + begin;
  SegmentTable past = segment_table(state());
  if (begin > 0) past.add(survivors_);
  chunk_.truncate(0);
  prefill_rows(state(), *runner_, past, tokens, first_position, {chunk_, window_, states_},
               options_.batch_tokens, options_.cancel, [&](int64_t done) {
                 const int64_t read = std::max<int64_t>(0, done - first_row(begin));
                 report_progress(Stage::kPrefill, begin + read);
               });
  if (begin == 0) survivors_.add_prefix(chunk_);
  frozen_window_ = {freeze_window(window_, state().hp.layers, plan_.n_prefix() + end),
                    states_.now()};
  figures_.peak_kv_bytes =
      std::max(figures_.peak_kv_bytes, survivors_.kv_bytes() + chunk_.kv_bytes());
}

int64_t StreamZipper::pass_position(int64_t end) const {
  const bool reads_only_rows = state().hp.layers.n_local() + state().hp.layers.n_recurrent() == 0;
  return plan_.n_prefix() + (reads_only_rows ? plan_.n_context() : end);
}

void StreamZipper::score(int64_t begin, int64_t end) {
  const Stopwatch watch(figures_.score);
  const MethodTraits& method = method_traits(options_.method);
  const ReconScore kind = method.recon.score;
  if (plan_.too_short || method.source == ScoreSource::kPlaces) {
    const Scores given =
        options_.method == Method::kStreamingLlm
            ? streaming_llm_scores(scores_.n_layer, scores_.n_kv_head, scores_.n_context,
                                   plan_.n_prefix())
            : random_scores(scores_.n_layer, scores_.n_kv_head, scores_.n_context, options_.seed);
    return copy_scores(given, begin, end, scores_);
  }
  if (method.source == ScoreSource::kRows) {
    return knorm_scores(chunk_, first_row(begin), begin, end - begin, scores_);
  }
  std::vector<float> value_logs;
  if (kind == ReconScore::kNormalised) {
    value_logs.resize(static_cast<size_t>(scores_.n_layer * state().hp.n_head * scores_.n_context));
    output_norm_logs(state(), chunk_, first_row(begin), begin, end - begin, scores_.n_context,
                     value_logs);
  }
  const ReconstructionPass pass = reconstruction_pass(prompts_, plan_.context, begin, end);
  SegmentTable prefix_and_chunk = segment_table(state());
  prefix_and_chunk.add_prefix(survivors_);
  prefix_and_chunk.add(chunk_, first_row(begin), chunk_.n_rows());
  PassAttention over = chunk_attention(std::move(prefix_and_chunk), begin, scores_, kind,
                                       value_logs.empty() ? nullptr : value_logs.data());
  over.past.add_window(frozen_window_);
  run_pass(state(), *runner_, over.past, over.own_place, &over.sink,
           {pass.input, pass_position(end), {}}, {.cancel = options_.cancel});
}

SegmentTable StreamZipper::rows_now(int64_t begin, bool with_chunk) const {
  SegmentTable rows = segment_table(state());
  rows.add(survivors_);
  if (with_chunk) rows.add(chunk_, first_row(begin), chunk_.n_rows());
  rows.add_window(frozen_window_);
  return rows;
}

void StreamZipper::check(int64_t begin, int64_t end, bool with_chunk, Losses& losses) {
  if (probes_.empty()) return;
  const Stopwatch watch(figures_.check);
  const SegmentTable past = rows_now(begin, with_chunk);
  const auto add = [&](const std::vector<Probe>& probes, NllSum& sum) {
    for (const Probe& probe : probes) {
      if (probe.end <= begin || probe.end > end) continue;
      sum.add(
          sum_nll(state(), *runner_, past, plan_.n_prefix() + end, {&probe, 1}, options_.cancel));
    }
  };
  add(probes_.reconstruction, losses.reconstruction);
  add(probes_.held_out, losses.held_out);
}

void StreamZipper::evict(int64_t begin, int64_t end) {
  const Stopwatch watch(figures_.compact);
  int64_t n_keep = n_keep_;
  if (end < plan_.n_context()) {
    const double share = static_cast<double>(end) / static_cast<double>(plan_.n_context());
    const double wanted = std::ceil(static_cast<double>(n_keep_) * share * (1 + kSlack));
    n_keep = static_cast<int64_t>(wanted);
  }
  // A size budget may have held back more of earlier chunks than later ones can make up for.
  n_keep = std::min(n_keep, survivors_.kept().pairs_kept() + size_.heads() * (end - begin));
  raise_scores(begin, end, scores_);
  const Budget& budget = plan_.too_short ? Budget{} : options_.budget;
  const BudgetRule& rule = method_traits(options_.method).rule;
  KeepSet kept =
      select_within([&](int64_t n) { return select_pairs(scores_, n, options_.allocation, rule); },
                    n_keep, budget, size_);
  forget_dropped(kept, end, scores_);
  survivors_.merge(chunk_, first_row(begin), begin, std::move(kept));
}

Context StreamZipper::run() {
  for (int64_t begin = 0; begin < plan_.n_context();) {
    const int64_t end = std::min(plan_.n_context(), begin + plan_.chunk_tokens);
    prefill(begin, end);
    score(begin, end);
    check(begin, end, true, before_);
    evict(begin, end);
    check(begin, end, false, after_);
    begin = end;
  }
  ContextRows rows{.layers = state().hp.layers,
                   .global = {},
                   .local = frozen_window_.window,
                   .states = frozen_window_.states};
  {
    const Stopwatch watch(figures_.compact);
    report_progress(Stage::kCompact, 0);
    rows.global = survivors_.take(stored_type(options_.kv));
  }
  std::optional<SelfCheck> loss;
  if (!probes_.empty()) {
    loss = SelfCheck{.reconstruction = after_.reconstruction.mean() - before_.reconstruction.mean(),
                     .held_out = after_.held_out.mean() - before_.held_out.mean()};
  }
  return make_context(model_, plan_, options_, std::move(rows), loss, figures_);
}

}  // namespace ctxzip
