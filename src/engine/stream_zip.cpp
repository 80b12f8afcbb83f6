#include "engine/stream_zip.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "engine/prompts.h"
#include "score/random.h"
#include "select/select.h"

namespace ctxzip {
namespace {

// Until the last chunk this share more than the budget is kept: pairs of early chunks compete with
// those of later ones before they are gone.
constexpr double kSlack = 0.05;

int64_t longest_chunk(const ZipPlan& plan) {
  return plan.n_prefix() + std::min(plan.chunk_tokens, plan.n_context());
}

}  // namespace

StreamZipper::StreamZipper(const Model& model, ZipPlan plan, const ZipOptions& options)
    : model_(model),
      plan_(std::move(plan)),
      options_(options),
      runner_(std::make_unique<GraphRunner>(*model.state())),
      prompts_(repeat_prompts(state().tokenizer, plan_.layout)),
      chunk_(global_shape(state()), longest_chunk(plan_)),
      window_(local_shape(state()), state().hp.layers.window_rows() +
                                        std::min(options.batch_tokens, longest_chunk(plan_))),
      survivors_(global_shape(state()), plan_.n_prefix(), plan_.n_context()) {
  options_.recon_attention = ReconAttention::kLocal;
  const KvShape& shape = survivors_.shape();
  scores_ = start_scores(shape.n_layer, shape.n_kv_head, plan_.n_context());
  if (options_.self_check && !plan_.too_short) {
    probes_ = self_check_probes(state().tokenizer, plan_.layout, plan_.context);
  }
  const int64_t window_bytes = frozen_window_rows(state().hp.layers, plan_.n_positions()) *
                               shape.n_kv_head * state().hp.layers.n_local() *
                               static_cast<int64_t>(shape.pair_size());
  n_keep_ = plan_.too_short
                ? scores_.pairs()
                : pairs_for_budget(options_.budget, {.n_layer = shape.n_layer,
                                                     .n_kv_head = shape.n_kv_head,
                                                     .n_context = plan_.n_context(),
                                                     .n_prefix = plan_.n_prefix(),
                                                     .pair_bytes = pair_bytes(shape, options_),
                                                     .window_bytes = window_bytes});
}

void StreamZipper::report_progress(Stage stage, int64_t done) const {
  if (options_.progress) options_.progress(stage, done, plan_.n_context());
}

void StreamZipper::prefill(int64_t begin, int64_t end) {
  const Stopwatch watch(seconds_.prefill);
  std::vector<Token> tokens;
  if (begin == 0) tokens = plan_.layout.prefix;
  tokens.insert(tokens.end(), plan_.context.begin() + begin, plan_.context.begin() + end);
  const int64_t first_position = begin == 0 ? 0 : plan_.n_prefix() + begin;
  SegmentTable past = segment_table(state());
  if (begin > 0) past.add(survivors_);
  CacheAttention attention(attention_setup(state()), past, static_cast<int>(past.size()), nullptr);
  chunk_.truncate(0);
  for (const int64_t n_tokens = static_cast<int64_t>(tokens.size()); chunk_.n_rows() < n_tokens;) {
    const int64_t first = chunk_.n_rows();
    const int64_t n = std::min(options_.batch_tokens, n_tokens - first);
    if (window_.n_rows() + n > window_.capacity()) {
      window_.drop_front(window_.n_rows() - state().hp.layers.window_rows());
    }
    attention.set_target({.global = {&chunk_, first}, .local = {&window_, window_.n_rows()}});
    const auto part = std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(n));
    runner_->run({part, first_position + first, {}}, attention, attention.own_row_capacity(),
                 {.cancel = options_.cancel});
    chunk_.extend(n);
    window_.extend(n);
    report_progress(Stage::kPrefill, std::max<int64_t>(0, begin + first + n - first_row(begin)));
  }
  if (begin == 0) survivors_.add_prefix(chunk_);
  frozen_window_ = freeze_window(window_, state().hp.layers, plan_.n_prefix() + end);
  peak_kv_bytes_ = std::max(
      peak_kv_bytes_, survivors_.kv_bytes() + chunk_.n_rows() * survivors_.shape().n_layer *
                                                  survivors_.shape().n_kv_head *
                                                  static_cast<int64_t>(chunk_.shape().pair_size()));
}

void StreamZipper::score(int64_t begin, int64_t end) {
  if (plan_.too_short) return;
  const Stopwatch watch(seconds_.score);
  if (options_.method == Method::kRandom) {
    const Scores all =
        random_scores(scores_.n_layer, scores_.n_kv_head, scores_.n_context, options_.seed);
    for (size_t pair = 0; pair < scores_.values.size(); ++pair) {
      const int64_t position = static_cast<int64_t>(pair) % scores_.n_context;
      if (position >= begin && position < end) scores_.values[pair] = all.values[pair];
    }
    return;
  }
  const ReconstructionPass pass = reconstruction_pass(prompts_, plan_.context, begin, end);
  SegmentTable past = segment_table(state());
  past.add_prefix(survivors_);
  past.add(chunk_, first_row(begin), chunk_.n_rows());
  past.add_window(frozen_window_);
  const ScoreSink sink = {.n_segments = 3,
                          .columns = 1,
                          .best = scores_.values.data() + begin,
                          .head_stride = scores_.n_context};
  DenseCache own(one_layer_shape(state()), static_cast<int64_t>(pass.input.size()));
  CacheAttention attention(attention_setup(state()), past, 2, &sink);
  attention.set_target({.global = {&own, 0}, .local = {&own, 0}, .one_layer = true});
  runner_->run({pass.input, plan_.n_prefix() + end, {}}, attention, 0, {.cancel = options_.cancel});
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
  const Stopwatch watch(seconds_.check);
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
  const Stopwatch watch(seconds_.compact);
  const double share = static_cast<double>(end) / static_cast<double>(plan_.n_context());
  const int64_t so_far = scores_.n_layer * scores_.n_kv_head * end;
  int64_t n_keep = n_keep_;
  if (end < plan_.n_context()) {
    const double wanted = std::ceil(static_cast<double>(n_keep_) * share * (1 + kSlack));
    n_keep = std::min(so_far, static_cast<int64_t>(wanted));
  }
  KeepSet kept = plan_.too_short
                     ? keep_all(scores_.n_layer, scores_.n_kv_head, scores_.n_context)
                     : select_for_budget(scores_, n_keep, survivors_.shape(), plan_.n_prefix(),
                                         frozen_window_.kv_bytes(), options_, options_.allocation);
  // What is gone cannot come back.
  if (!plan_.too_short) {
    std::vector<float> left(scores_.values.size(), -INFINITY);
    for (size_t head = 0; head < kept.rows.size(); ++head) {
      const size_t start = head * static_cast<size_t>(scores_.n_context);
      for (const uint32_t row : kept.rows[head]) left[start + row] = scores_.values[start + row];
    }
    scores_.values = std::move(left);
  }
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
  ContextRows rows{.layers = state().hp.layers, .global = {}, .local = frozen_window_};
  {
    const Stopwatch watch(seconds_.compact);
    report_progress(Stage::kCompact, 0);
    rows.global = survivors_.take(stored_type(options_));
  }
  std::optional<SelfCheck> loss;
  if (!probes_.empty()) {
    loss = SelfCheck{.reconstruction = after_.reconstruction.mean() - before_.reconstruction.mean(),
                     .held_out = after_.held_out.mean() - before_.held_out.mean()};
  }
  return make_context(model_, plan_, options_, std::move(rows), loss, seconds_);
}

}  // namespace ctxzip
