// Decoding under a recall policy through the model's graph, where errors add up over layers and
// steps: needles asked after a text, and what a continuation costs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/fail.h"
#include "engine/recall_stream.h"
#include "engine/self_check.h"
#include "eval/experiment.h"
#include "eval/recall_policy.h"

namespace ctxzip::eval {
namespace {

constexpr int64_t kContinuationTokens = 256;
constexpr int64_t kAnswerTokens = kItemTokens - kGivenTokens;
constexpr std::string_view kStreamed = "-streamed";
constexpr const char* kStreamNames =
    "full, recall, recall-N (sketch rank N), recall-topN (N rows at most for a head), "
    "recall-sound, evicted (no recall), recent (the newest rows, no recall); with -streamed the "
    "text beyond its first block is decoded token by token under the policy";

struct Policy {
  RecallOptions recall;
  bool dense = false;     // attends to everything
  bool recent = false;    // keeps the newest rows, not the highest
  bool streamed = false;  // the text is decoded, so that blocks close on the way
};

std::optional<Policy> find_stream_policy(std::string_view name) {
  Policy policy;
  policy.streamed = name.ends_with(kStreamed);
  if (policy.streamed) name.remove_suffix(kStreamed.size());
  policy.dense = name == "full";
  policy.recent = name == "recent";
  const auto recall = find_policy(policy.dense || policy.recent ? "evicted" : name);
  if (!recall) return std::nullopt;
  policy.recall = *recall;
  return policy;
}

void check_stream_policy(const std::string& name) {
  if (find_stream_policy(name)) return;
  fail(ErrorKind::kInvalidArgument, "'{}' is no policy: expected {}", name, kStreamNames);
}

// What the steps of one question did.
struct StepShares {
  double extra = 0;      // rows fetched in a step and layer, of all
  double triggered = 0;  // steps and layers that fetched
  double read = 0;       // bytes, of those of all rows
};

// A text under one policy, ready to be asked.
class StreamRun {
 public:
  StreamRun(const Model& model, const ExperimentOptions& options, const NeedleText& text,
            const std::string& method, double ratio, const CancelToken* cancel)
      : policy_(*find_stream_policy(method)),
        cancel_(cancel),
        stream_(model, stream_options(options, ratio)) {
    stream_.set_dense(policy_.dense);
    feed_text(text.tokens, options.block_rows);
    for (int64_t at = 0; at < kCalibratingNeedles * options.n_needles; ++at) {
      for (const Token token : text.needles[static_cast<size_t>(at)].query) {
        stream_.decode(token, cancel);
      }
    }
    stream_.settle();
    mark_ = stream_.mark();
  }

  // Every question starts behind the text and the queries that calibrated.
  void turn_back() {
    stream_.rewind(mark_);
    before_ = stream_.report();
  }
  std::span<const float> decode(Token token) { return stream_.decode(token, cancel_); }
  std::vector<double> nll(std::span<const float> logits, std::span<const Token> tokens) {
    return forced_nll(stream_, logits, tokens, cancel_);
  }
  // Since turn_back().
  StepShares shares() const {
    const RecallReport now = stream_.report();
    const auto per = [](int64_t sum, int64_t n) {
      return static_cast<double>(sum) / static_cast<double>(std::max<int64_t>(n, 1));
    };
    const int64_t steps = now.layer_steps - before_.layer_steps;
    return {per(now.fetched_rows - before_.fetched_rows, steps * stream_.n_rows()),
            per(now.triggered - before_.triggered, steps),
            per(now.bytes_read - before_.bytes_read, now.bytes_dense - before_.bytes_dense)};
  }
  // Whether every layer of the last step attended to a row of the text.
  bool attended(int64_t row) const {
    if (policy_.dense) return true;
    const auto at = static_cast<uint32_t>(row);
    for (int64_t layer = 0; layer < stream_.layers().n_layer(); ++layer) {
      const DecodeStep& step = stream_.layers().step(layer);
      const RecallCache& cache = stream_.layers().cache(layer);
      const auto kept = cache.kept();
      const auto fetched = step.fetched();
      if (row < cache.n_closed() && !step.counts().dense && !step.counts().overflowed &&
          !std::binary_search(kept.begin(), kept.end(), at) &&
          !std::binary_search(fetched.begin(), fetched.end(), at)) {
        return false;
      }
    }
    return true;
  }

 private:
  StreamOptions stream_options(const ExperimentOptions& options, double ratio) const {
    StreamOptions stream;
    stream.policy = policy_.recall;
    stream.policy.block_rows = options.block_rows;
    stream.policy.keep_ratio = ratio;
    if (policy_.recent) {
      const auto n_kept = std::llround(ratio * static_cast<double>(options.length));
      stream.policy.n_recent = std::max<int64_t>(n_kept - 1, 0);
      stream.policy.keep_ratio = 1 / static_cast<double>(options.length);
    }
    stream.control = true;
    const int64_t n_queries = kCalibratingNeedles * options.n_needles * kItemTokens;
    stream.capacity = options.length + n_queries + kContinuationTokens;
    return stream;
  }

  void feed_text(std::span<const Token> tokens, int64_t block_rows) {
    const auto n = static_cast<int64_t>(tokens.size());
    const auto n_first = static_cast<size_t>(policy_.streamed ? std::min(block_rows, n) : n);
    stream_.prefill(tokens.first(n_first), cancel_);
    for (const Token token : tokens.subspan(n_first)) stream_.decode(token, cancel_);
    stream_.close_now();
  }

  Policy policy_;
  const CancelToken* cancel_;
  RecallStream stream_;
  StreamMark mark_;
  RecallReport before_;
};

struct Answer {
  double nll = 0;        // of all its tokens, nats
  bool found = true;     // each of them is the likeliest
  bool attended = true;  // each step attended to the row of the value it asks for, in every layer
  std::string output;    // the likeliest tokens
  StepShares shares = {};
};

Answer ask(StreamRun& run, const Needle& needle) {
  run.turn_back();
  Answer answer;
  for (int64_t at = 0; at + 1 < kItemTokens; ++at) {
    const auto logits = run.decode(needle.query[static_cast<size_t>(at)]);
    if (at + 1 < kGivenTokens) continue;
    const Token wanted = needle.query[static_cast<size_t>(at + 1)];
    const auto likeliest =
        static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    answer.nll += token_nll(logits, wanted);
    answer.found &= likeliest == wanted;
    answer.attended &= run.attended(needle.first + at + 1);
    answer.output += fmt::format("{}{}", answer.output.empty() ? "" : " ", likeliest);
  }
  answer.shares = run.shares();
  return answer;
}

AnswerRecord record_of(const ExperimentOptions& options, RecordKey key, std::vector<double> scores,
                       int64_t n_tokens) {
  AnswerRecord record{.key = std::move(key), .scores = std::move(scores)};
  record.context_tokens = options.length;
  record.output_tokens = n_tokens;
  record.stop_reason = "forced";
  return record;
}

std::vector<AnswerRecord> run_stream(const Model& model, const ExperimentOptions& options,
                                     int64_t number, const CancelToken* cancel) {
  Draw draw(options.seed, context_id(options, number));
  const NeedleText text = calibrated_text(options, draw);
  const auto asked =
      std::span(text.needles).subspan(static_cast<size_t>(kCalibratingNeedles * options.n_needles));
  const auto answers = [&](const std::string& method, double ratio) {
    StreamRun run(model, options, text, method, ratio, cancel);
    std::vector<Answer> all;
    for (const Needle& needle : asked) all.push_back(ask(run, needle));
    return all;
  };
  const std::vector<Answer> full = answers("full", 1);
  std::vector<AnswerRecord> records;
  for (const auto& [method, ratio] : experiment_variants(options)) {
    const std::vector<Answer> all = method == "full" ? full : answers(method, ratio);
    for (size_t at = 0; at < all.size(); ++at) {
      const Answer& answer = all[at];
      const double delta = answer.nll - full[at].nll;
      AnswerRecord record = record_of(
          options, {context_id(options, number), fmt::format("needle {}", at), method, ratio},
          {delta < kIntactNats ? 1.0 : 0.0, answer.found ? 1.0 : 0.0, delta, answer.nll,
           answer.attended ? 1.0 : 0.0, answer.shares.extra, answer.shares.triggered,
           answer.shares.read},
          kAnswerTokens);
      record.part = asked[at].place;
      record.output = answer.output;
      record.gold = {fmt::format("{} {}", asked[at].query[2], asked[at].query[3])};
      records.push_back(std::move(record));
    }
  }
  return records;
}

std::vector<AnswerRecord> run_continuation(const Model& model, const ExperimentOptions& options,
                                           int64_t number, const CancelToken* cancel) {
  Draw draw(options.seed, context_id(options, number));
  const NeedleText text = calibrated_text(options, draw);
  const std::vector<Token> next =
      make_needle_text({.n_tokens = kContinuationTokens, .n_needles = 0, .n_distractors = 0}, draw)
          .tokens;
  struct Cost {
    double nll = 0;  // nats per token
    StepShares shares;
  };
  const auto cost = [&](const std::string& method, double ratio) {
    StreamRun run(model, options, text, method, ratio, cancel);
    run.turn_back();
    const std::span<const Token> tokens(next);
    double sum = 0;
    for (const double nats : run.nll(run.decode(tokens[0]), tokens.subspan(1))) sum += nats;
    return Cost{sum / static_cast<double>(tokens.size() - 1), run.shares()};
  };
  const Cost full = cost("full", 1);
  std::vector<AnswerRecord> records;
  for (const auto& [method, ratio] : experiment_variants(options)) {
    const Cost now = method == "full" ? full : cost(method, ratio);
    records.push_back(record_of(
        options, {context_id(options, number), "continuation", method, ratio},
        {now.nll - full.nll, now.nll, now.shares.extra, now.shares.triggered, now.shares.read},
        kContinuationTokens - 1));
  }
  return records;
}

std::vector<std::string> stream_questions(const Model&, const ExperimentOptions& options) {
  std::vector<std::string> ids;
  for (int64_t at = 0; at < options.n_needles; ++at) ids.push_back(fmt::format("needle {}", at));
  return ids;
}

std::vector<std::string> one_continuation(const Model&, const ExperimentOptions&) {
  return {"continuation"};
}

}  // namespace

Experiment stream_experiment() {
  return {
      .name = "vestige-stream",
      .summary = "Needles asked under a recall policy, through the model's graph",
      .methods = {"full", "evicted", "recall", "recent"},
      .known_methods = kStreamNames,
      .ratios = {0.125, 0.03125},
      .metrics = {"intact", "found", "delta_nll", "nll", "attended", "extra", "triggered", "read"},
      .check_method = check_stream_policy,
      .questions = stream_questions,
      .run = run_stream};
}

Experiment continuation_experiment() {
  return {.name = "vestige-continuation",
          .summary = "What 256 more tokens of the text cost under a recall policy, nats per token",
          .methods = {"full", "evicted", "recall", "recent"},
          .known_methods = kStreamNames,
          .ratios = {0.125, 0.03125},
          .metrics = {"delta_nll", "nll", "extra", "triggered", "read"},
          .check_method = check_stream_policy,
          .questions = one_continuation,
          .run = run_continuation};
}

}  // namespace ctxzip::eval
