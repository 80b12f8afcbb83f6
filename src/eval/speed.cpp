#include "eval/speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <span>

#include "core/fail.h"
#include "core/memory.h"
#include "core/stopwatch.h"
#include "ctxzip/session.h"
#include "engine/context_tail.h"
#include "engine/stream_zip.h"
#include "engine/zipper.h"
#include "eval/llama_peer.h"
#include "eval/repeated_rows.h"
#include "eval/sample_text.h"
#include "select/select.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kBatch = 512;
constexpr int64_t kShortestContext = 64;
constexpr int64_t kLongestContext = int64_t{1} << 22;  // beyond what any model is trained for

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Token> context_of(const Model& model, const std::string& text, int64_t n_tokens) {
  const std::vector<Token> once = model.tokenize(text.empty() ? sample_text() : text);
  if (once.empty()) fail(ErrorKind::kInvalidArgument, "the text for the benchmark is empty");
  std::vector<Token> tokens;
  while (static_cast<int64_t>(tokens.size()) < n_tokens)
    tokens.insert(tokens.end(), once.begin(), once.end());
  tokens.resize(static_cast<size_t>(n_tokens));
  return tokens;
}

// Decoding after a zipped context, as a session does it and as several do it side by side.
class Decoder {
 public:
  Decoder(Context context, int64_t n_sessions)
      : context_(std::move(context)), group_(context_.state()) {
    for (int64_t tail = 0; tail < n_sessions; ++tail) {
      tails_.push_back(std::make_unique<ContextTail>(context_.state()));
      group_of_.push_back(tails_.back().get());
    }
  }

  // Tokens per second of a round; the first token builds the graph and does not count.
  double round(std::span<const Token> tokens) {
    ContextTail& tail = *tails_[0];
    return timed_round(tokens, [&](Token token) { tail.feed({&token, 1}, nullptr); });
  }
  // The same, of all sessions together.
  double group_round(std::span<const Token> tokens) {
    const auto n = static_cast<double>(tails_.size());
    return n * timed_round(tokens, [&](Token token) {
             const std::vector<Token> each(tails_.size(), token);
             group_.feed(group_of_, each, nullptr);
           });
  }

  const ZipReport& report() const { return context_.report(); }

 private:
  template <typename Feed>
  double timed_round(std::span<const Token> tokens, Feed feed) {
    for (const auto& tail : tails_) tail->rows().truncate(0);
    feed(tokens[0]);
    const auto start = std::chrono::steady_clock::now();
    for (const Token token : tokens.subspan(1)) feed(token);
    return static_cast<double>(tokens.size() - 1) / seconds_since(start);
  }

  Context context_;
  std::vector<std::unique_ptr<ContextTail>> tails_;
  std::vector<ContextTail*> group_of_;
  TailGroup group_;
};

// All ratios at one context length; two-pass prefills once for all of them.
class LengthRun {
 public:
  LengthRun(const Model& model, const SpeedOptions& options, const SpeedHooks& hooks,
            int64_t n_tokens)
      : model_(model), options_(options), hooks_(hooks), n_tokens_(n_tokens) {
    tokens_ = context_of(model, options.text, n_tokens + options.decode_tokens + 1);
    zip_ = options.zip;
    zip_.allow_long = true;
    zip_.budget = {};
    zip_.cancel = hooks.cancel;
  }

  void measure(SpeedReport& report) {
    zip_all(report);
    std::optional<PeerRow> peer;
    if (options_.peer) peer = measure_rounds(report, true);
    if (!peer) measure_rounds(report, false);
    if (peer) report.peer.push_back(*peer);
  }

 private:
  std::span<const Token> next() const {
    return std::span(tokens_).subspan(static_cast<size_t>(n_tokens_));
  }
  ZipPlan plan() const {
    std::vector<Token> context(tokens_.begin(), tokens_.begin() + n_tokens_);
    return plan_zip(*model_.state(), PromptLayout{}, std::move(context), zip_);
  }
  void say(const char* what) const {
    if (hooks_.status) hooks_.status(fmt::format("{} tokens: {}", n_tokens_, what));
  }
  void stop_if_cancelled() const {
    if (hooks_.cancel != nullptr && hooks_.cancel->cancelled())
      fail(ErrorKind::kCancelled, "interrupted");
  }
  void zip_all(SpeedReport& report);
  void add_row(SpeedReport& report, double ratio, Context context);
  std::optional<PeerRow> measure_rounds(SpeedReport& report, bool with_peer);

  const Model& model_;
  const SpeedOptions& options_;
  const SpeedHooks& hooks_;
  int64_t n_tokens_;
  std::vector<Token> tokens_;
  ZipOptions zip_;
  std::deque<Decoder> decoders_;
};

void LengthRun::add_row(SpeedReport& report, double ratio, Context context) {
  const ZipReport& zipped = context.report();
  SpeedRow row{.context_tokens = n_tokens_, .ratio = ratio, .kv_type = zipped.row_type};
  if (!options_.decode_only) {
    row.prefill_tokens_per_s = static_cast<double>(n_tokens_) / zipped.prefill_s;
    row.score_s = ratio < 1 ? zipped.score_s : 0;
  }
  row.kv_bytes = zipped.kv_bytes_kept;
  row.delta_nll = zipped.delta_nll;
  row.peak_rss_bytes = resident_memory().peak_bytes;
  report.rows.push_back(row);
  decoders_.emplace_back(std::move(context), options_.n_sessions);
}

void LengthRun::zip_all(SpeedReport& report) {
  if (options_.decode_only) {
    say("repeated rows");
    const RepeatedRows rows(model_, plan(), zip_, kBatch);
    for (const double ratio : options_.ratios) add_row(report, ratio, rows.copy(ratio));
    return;
  }
  say("prefill and score");
  if (zip_.schedule == Schedule::kStreaming) {
    for (const double ratio : options_.ratios) {
      zip_.budget.ratio = ratio;
      add_row(report, ratio, StreamZipper(model_, plan(), zip_).run());
    }
    return;
  }
  Zipper zipper(model_, plan(), zip_);
  zipper.prefill();
  for (const double ratio : options_.ratios) {
    const Budget budget = {.ratio = ratio};
    const KvShape& shape = zipper.full_rows().global.shape();
    const KeepSet kept = ratio == 1 ? keep_all(shape.n_layer, shape.n_kv_head, n_tokens_)
                                    : zipper.select(zip_.method, budget, zip_.allocation);
    add_row(report, ratio, zipper.copy(zip_.method, zip_.allocation, kept));
  }
}

std::optional<PeerRow> LengthRun::measure_rounds(SpeedReport& report, bool with_peer) {
  std::unique_ptr<LlamaPeer> peer;
  PeerRow row{.context_tokens = n_tokens_};
  if (with_peer) {
    say(options_.decode_only ? "llama.cpp's repeated rows" : "llama.cpp's prefill");
    peer = std::make_unique<LlamaPeer>(
        model_.info().path, LlamaPeerOptions{.cache_type = GGML_TYPE_F16,
                                             .n_threads = model_.state()->options.n_threads,
                                             .n_ctx = n_tokens_ + 2 * options_.decode_tokens + 2,
                                             .flash_attention = true});
    const auto start = std::chrono::steady_clock::now();
    const int64_t n_fed = options_.decode_only ? std::min(kBatch, n_tokens_) : n_tokens_;
    for (int64_t first = 0; first < n_fed; first += kBatch) {
      stop_if_cancelled();
      const auto n = static_cast<size_t>(std::min(kBatch, n_fed - first));
      peer->feed_last(std::span(tokens_).subspan(static_cast<size_t>(first), n), kBatch);
    }
    if (options_.decode_only) {
      peer->repeat_rows(n_tokens_);
    } else {
      row.prefill_tokens_per_s = static_cast<double>(n_tokens_) / seconds_since(start);
    }
  }
  say("decode");
  std::vector<double> peer_speed;
  std::vector<std::vector<double>> speed(decoders_.size());
  std::vector<std::vector<double>> group_speed(decoders_.size());
  for (int round = 0; round < options_.n_rounds; ++round) {
    stop_if_cancelled();
    if (peer) {
      peer->truncate(n_tokens_);
      peer->feed(next().first(1), 1);
      const auto start = std::chrono::steady_clock::now();
      peer->feed(next().subspan(1), 1);
      peer_speed.push_back(static_cast<double>(next().size() - 1) / seconds_since(start));
    }
    for (size_t way = 0; way < decoders_.size(); ++way) {
      speed[way].push_back(decoders_[way].round(next()));
      if (options_.n_sessions > 1) group_speed[way].push_back(decoders_[way].group_round(next()));
    }
  }
  SpeedRow* rows = report.rows.data() + report.rows.size() - decoders_.size();
  for (size_t way = 0; way < decoders_.size(); ++way) {
    rows[way].decode_tokens_per_s = median(speed[way]);
    if (!group_speed[way].empty()) rows[way].group_tokens_per_s = median(group_speed[way]);
    if (!peer) continue;
    if (row.prefill_tokens_per_s) {
      rows[way].prefill_vs_llama_cpp = *rows[way].prefill_tokens_per_s / *row.prefill_tokens_per_s;
    }
    std::vector<double> times;
    for (size_t round = 0; round < peer_speed.size(); ++round)
      times.push_back(speed[way][round] / peer_speed[round]);
    rows[way].decode_vs_llama_cpp = median(times);
  }
  if (!peer) return std::nullopt;
  row.decode_tokens_per_s = median(peer_speed);
  return row;
}

}  // namespace

SpeedReport measure_speed(const Model& model, const SpeedOptions& options,
                          const SpeedHooks& hooks) {
  for (const double ratio : options.ratios) {
    if (!(ratio > 0 && ratio <= 1)) {
      fail(ErrorKind::kInvalidArgument, "a ratio of {}: expected more than 0 and at most 1", ratio);
    }
  }
  if (options.ratios.empty() || options.context_tokens.empty()) {
    fail(ErrorKind::kInvalidArgument, "there is no {} to measure",
         options.ratios.empty() ? "ratio" : "context length");
  }
  for (const int64_t n_tokens : options.context_tokens) {
    if (n_tokens < kShortestContext || n_tokens > kLongestContext) {
      fail(ErrorKind::kInvalidArgument, "a context of {} tokens: expected {} to {}", n_tokens,
           kShortestContext, kLongestContext);
    }
  }
  if (options.n_sessions < 1 || options.n_sessions > kMostAtOnce) {
    fail(ErrorKind::kInvalidArgument, "{} sessions: expected 1 to {}", options.n_sessions,
         kMostAtOnce);
  }
  if (options.decode_only && options.zip.schedule == Schedule::kStreaming) {
    fail(ErrorKind::kInvalidArgument, "decoding alone has no schedule: leave streaming out");
  }
  SpeedReport report;
  for (const int64_t n_tokens : options.context_tokens) {
    LengthRun(model, options, hooks, n_tokens).measure(report);
  }
  return report;
}

}  // namespace ctxzip::eval
