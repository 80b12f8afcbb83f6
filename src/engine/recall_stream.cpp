#include "engine/recall_stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "core/fail.h"
#include "select/select.h"

namespace ctxzip {
namespace {

constexpr int64_t kShortestRoom = 256;
// Rows that may be added when the context fills the trained length.
constexpr int64_t kRoomBeyondTraining = 8192;

int64_t capacity_for(const detail::ModelState& model, const StreamOptions& options,
                     int64_t n_rows) {
  if (options.capacity > 0) return std::max(options.capacity, n_rows);
  const int64_t n_train = model.hp.n_ctx_train;
  return n_train - n_rows >= kShortestRoom ? n_train : n_rows + kRoomBeyondTraining;
}

const detail::ModelState& checked(const Model& model, const StreamOptions& options) {
  require_recall_model(*model.state(), options);
  if (options.batch_tokens < 1 || options.audit_steps < 0 || options.capacity < 0 ||
      options.calibration_tokens < 0) {
    fail(ErrorKind::kInvalidArgument,
         "batches of {} tokens, audits every {} steps, {} tokens at most, {} to calibrate with: "
         "expected at least 1 and no negative number",
         options.batch_tokens, options.audit_steps, options.capacity, options.calibration_tokens);
  }
  return *model.state();
}

}  // namespace

void require_recall_model(const detail::ModelState& model, const StreamOptions& options) {
  const Hyperparameters& hp = model.hp;
  if (hp.latent.content == 0) {
    fail(ErrorKind::kUnsupported,
         "'{}' (architecture '{}') has plain KV heads, but VestigeKV reads the unrotated branch of "
         "latent attention (MLA), as kimi-linear has it: use zip without --policy",
         model.info.name, hp.architecture);
  }
  if (hp.rotary && !options.control) {
    fail(ErrorKind::kUnsupported,
         "'{}' (architecture '{}') rotates the rows of its latent attention by position, but "
         "VestigeKV rests on rows that are not rotated (NoPE), as kimi-linear has them: use zip "
         "without --policy, or --control to see how it fails",
         model.info.name, hp.architecture);
  }
}

RecallStream::RecallStream(const Model& model, const StreamOptions& options)
    : model_(model),
      options_(options),
      seam_(attention_setup(checked(model, options)), capacity_for(*model.state(), options, 0),
            options.batch_tokens, options.policy),
      states_(first_states(*model.state())),
      batch_runner_(*model.state()),
      decode_runner_(*model.state()),
      audited_(static_cast<size_t>(seam_.n_layer())),
      refuted_(static_cast<size_t>(seam_.n_layer())) {}

RecallStream::RecallStream(const Model& model, const StreamOptions& options,
                           const ContextRows& rows, const std::vector<RecallState>& layers)
    : model_(model),
      options_(options),
      seam_(attention_setup(checked(model, options)),
            capacity_for(*model.state(), options, rows.n_positions()), options.batch_tokens,
            options.policy),
      states_(rows.states),
      batch_runner_(*model.state()),
      decode_runner_(*model.state()),
      audited_(static_cast<size_t>(seam_.n_layer())),
      refuted_(static_cast<size_t>(seam_.n_layer())) {
  const RowType stored = rows.global.shape.row_type;
  if (stored != global_shape(state()).row_type) {
    fail(ErrorKind::kMismatch, "the context has {} rows, but the model was loaded for {} rows",
         row_type_name(stored), row_type_name(global_shape(state()).row_type));
  }
  CHECK(static_cast<int64_t>(layers.size()) == seam_.n_layer());
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    const auto index = static_cast<size_t>(at);
    seam_.cache(at).restore(layers[index], rows.global.k_layers[index]);
  }
}

std::span<const float> RecallStream::run(std::span<const Token> tokens, bool wants_logits,
                                         bool exact, const CancelToken* cancel) {
  const auto n = static_cast<int64_t>(tokens.size());
  if (broken_) {
    fail(ErrorKind::kIo, "rows of this stream could not be stored: start it anew");
  }
  if (n_rows() + n > capacity()) {
    fail(ErrorKind::kTooLong, "{} tokens and {} more do not fit a stream of {}", n_rows(), n,
         capacity());
  }
  seam_.begin({&states_.now(), &states_.next()});
  for (int64_t at = 0; at < seam_.n_layer(); ++at) seam_.step(at).set_dense(exact || dense_);
  const std::vector<int32_t> outputs(wants_logits ? 1 : 0, static_cast<int32_t>(n - 1));
  GraphRunner& runner = n == 1 ? decode_runner_ : batch_runner_;
  std::span<const float> logits;
  try {
    logits = runner.run({tokens, n_rows(), outputs}, seam_, 0, {.cancel = cancel});
  } catch (...) {
    seam_.undo();
    if (n == 1) step_holds_ = false;
    throw;
  }
  try {
    seam_.commit(n);
    states_.advance();
    if (n == 1 && exact) step_holds_ = false;
    if (n == 1 && !exact) after_step();
    maintain();
  } catch (...) {
    broken_ = true;
    throw;
  }
  return logits;
}

std::span<const float> RecallStream::prefill(std::span<const Token> tokens,
                                             const CancelToken* cancel,
                                             const std::function<void(int64_t)>& on_rows) {
  std::span<const float> logits;
  for (size_t done = 0; done < tokens.size();) {
    const auto part = tokens.subspan(
        done, std::min(static_cast<size_t>(options_.batch_tokens), tokens.size() - done));
    done += part.size();
    logits = run(part, done == tokens.size(), true, cancel);
    if (on_rows) on_rows(static_cast<int64_t>(done));
  }
  for (int64_t at = 0; at < seam_.n_layer(); ++at) seam_.cache(at).drop_archive_pages();
  return logits;
}

std::span<const float> RecallStream::decode(Token token, const CancelToken* cancel) {
  return run({&token, 1}, true, false, cancel);
}

void RecallStream::after_step() {
  ++n_steps_;
  excluded_before_.reset();
  step_holds_ = true;
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    const RecallCache& cache = seam_.cache(at);
    totals_.add(seam_.step(at).counts());
    bytes_dense_ += cache.n_rows() * static_cast<int64_t>(cache.row_bytes());
  }
  if (options_.audit_steps > 0 && n_steps_ % options_.audit_steps == 0) audit();
}

void RecallStream::audit() {
  const RecallOptions& policy = options_.policy;
  ++audit_.steps;
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    RecallCache& cache = seam_.cache(at);
    const AuditCounts found = audit_step(cache, seam_.step(at), seam_.queries(at));
    audit_.queries += found.queries;
    audit_.found += found.found;
    // A few misses of few queries say nothing: as many are needed as a perfect record takes to
    // pass.
    AuditCounts& sum = audited_[static_cast<size_t>(at)];
    sum.queries += found.queries;
    sum.found += found.found;
    const bool calibrated = cache.calibration().phase != CalibrationPhase::kProvisional;
    if (!policy.recall || policy.sound || !calibrated || cache.calibrating() ||
        sum.queries < audits_to_pass(policy.target.recall)) {
      continue;
    }
    if (clopper_pearson(sum.found, sum.queries).lower >= policy.target.recall) continue;
    refuted_[static_cast<size_t>(at)] = cache.calibration().z;
    cache.target_missed();
    ++audit_.recalibrations;
    sum = {};
  }
}

void RecallStream::maintain() {
  const auto start = std::chrono::steady_clock::now();
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    const int64_t n_closed = seam_.cache(at).n_closed();
    seam_.cache(at).maintain();
    if (seam_.cache(at).n_closed() != n_closed) step_holds_ = false;
  }
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  longest_pause_s_ = std::max(longest_pause_s_, taken.count());
}

void RecallStream::close_now() {
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    if (seam_.cache(at).close_now()) step_holds_ = false;
  }
}

void RecallStream::settle() {
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    while (seam_.cache(at).maintain()) {
    }
  }
}

StreamMark RecallStream::mark() const {
  StreamMark mark{.layers = {}, .states = states_.now()};
  for (int64_t at = 0; at < seam_.n_layer(); ++at) mark.layers.push_back(seam_.cache(at).state());
  return mark;
}

void RecallStream::rewind(const StreamMark& mark) {
  if (options_.audit_steps > 0 && step_holds_) excluded_before_ = excluded_mass_limit();
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    RecallCache& cache = seam_.cache(at);
    const auto index = static_cast<size_t>(at);
    cache.rewind(mark.layers[index]);
    if (refuted_[index] == cache.calibration().z) cache.target_missed();
  }
  states_.set(mark.states);
  broken_ = step_holds_ = false;
}

ContextRows RecallStream::copy_rows(int64_t n_prefix) const {
  const KvShape shape = global_shape(state());
  const size_t row_bytes = shape.row_size();
  const auto n = static_cast<size_t>(n_rows());
  auto storage =
      std::make_shared<std::vector<std::byte>>(static_cast<size_t>(shape.n_layer) * n * row_bytes);
  ContextRows rows;
  rows.layers = state().hp.layers;
  rows.states = states_.now();
  rows.global.shape = shape;
  rows.global.n_prefix = n_prefix;
  rows.global.kept = keep_all(shape.n_layer, 1, n_rows() - n_prefix);
  for (int64_t at = 0; at < shape.n_layer; ++at) {
    const RecallCache& cache = seam_.cache(at);
    std::byte* to = storage->data() + static_cast<size_t>(at) * n * row_bytes;
    const size_t closed_bytes = static_cast<size_t>(cache.n_closed()) * row_bytes;
    std::memcpy(to, cache.closed_rows().data, closed_bytes);
    std::memcpy(to + closed_bytes, cache.tail_rows().data,
                static_cast<size_t>(cache.n_tail()) * row_bytes);
    rows.global.k_layers.push_back(to);
    rows.global.v_layers.push_back(to);
  }
  index_rows(rows.global);
  rows.global.storage = std::move(storage);
  return rows;
}

std::optional<double> RecallStream::excluded_mass_limit() const {
  if (!step_holds_) return std::nullopt;
  double worst = 0;
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    const std::vector<double> limits = seam_.step(at).excluded_mass_limits();
    worst = std::max(worst, *std::max_element(limits.begin(), limits.end()));
  }
  return worst;
}

RecallReport RecallStream::report() const {
  RecallReport report;
  report.target = options_.policy.recall ? options_.policy.target.recall : 0;
  report.sound = options_.policy.sound;
  report.effective_ratio = seam_.cache(0).effective_ratio();
  report.steps = n_steps_;
  report.layer_steps = totals_.steps;
  report.triggered = totals_.triggered;
  report.dense = totals_.dense;
  report.overflowed = totals_.overflowed;
  report.fired_rows = totals_.fired_rows;
  report.fetched_rows = totals_.fetched_rows;
  report.bytes_read = totals_.bytes_read;
  report.bytes_dense = bytes_dense_;
  report.excluded_mass_limit = step_holds_ ? excluded_mass_limit() : excluded_before_;
  report.audit = audit_;
  const ProportionLimits limits = clopper_pearson(audit_.found, audit_.queries);
  report.audit.lower = limits.lower;
  report.audit.upper = limits.upper;
  report.longest_pause_s = longest_pause_s_;
  for (int64_t at = 0; at < seam_.n_layer(); ++at) {
    const RecallCache& cache = seam_.cache(at);
    const auto n_kept = static_cast<int64_t>(cache.kept().size());
    const auto row_bytes = static_cast<int64_t>(cache.row_bytes());
    report.layers.push_back({.layer = state().hp.layers.global_layers()[static_cast<size_t>(at)],
                             .kept = n_kept,
                             .archived = cache.n_archived(),
                             .tail = cache.n_tail(),
                             .calibration = cache.calibration()});
    report.resident_bytes +=
        (n_kept + cache.n_tail()) * row_bytes + cache.n_closed() * cache.index().entry_bytes();
    report.archive_bytes += cache.n_closed() * row_bytes;
  }
  return report;
}

std::vector<double> forced_nll(RecallStream& stream, std::span<const float> before,
                               std::span<const Token> tokens, const CancelToken* cancel) {
  std::vector<double> nats;
  std::span<const float> logits = before;
  for (size_t at = 0; at < tokens.size(); ++at) {
    const float most = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(double{logit} - double{most});
    nats.push_back(std::log(sum) + double{most} - double{logits[static_cast<size_t>(tokens[at])]});
    if (at + 1 < tokens.size()) logits = stream.decode(tokens[at], cancel);
  }
  return nats;
}

}  // namespace ctxzip
