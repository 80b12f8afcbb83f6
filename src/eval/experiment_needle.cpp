// Whether needles survive a compression that knows no query: each selection at each ratio, paired
// with the full cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "core/fail.h"
#include "engine/passes.h"
#include "engine/self_check.h"
#include "engine/zipper.h"
#include "eval/experiment.h"
#include "eval/needle_text.h"
#include "eval/row_selection.h"
#include "select/select.h"

namespace ctxzip::eval {
namespace {

// Of one needle's answer.
struct NeedleLoss {
  double nll = 0;      // of all its tokens, nats
  bool found = false;  // each of them is the likeliest
  std::string output;  // the likeliest tokens
};

// What queries cost after a text, over any choice of its rows.
class NeedleRun {
 public:
  NeedleRun(const Model& model, const ExperimentOptions& options, int64_t number,
            const CancelToken* cancel)
      : model_(model), options_(options), cancel_(cancel), runner_(*model.state()) {
    Draw draw(options.seed, context_id(options, number));
    text_ = make_needle_text({.n_tokens = options.length,
                              .n_needles = options.n_needles,
                              .n_distractors = options.n_needles,
                              .block_rows = options.block_rows},
                             draw);
    for (const Needle& needle : text_.needles) {
      queries_.insert(queries_.end(), needle.query.begin(), needle.query.end());
    }
    ZipOptions zip;
    zip.method = Method::kStreamingLlm;
    zip.self_check = false;
    zip.seed = options.seed + static_cast<uint64_t>(number);
    zip.cancel = cancel;
    zipper_.emplace(model, plan_zip(*model.state(), PromptLayout{}, text_.tokens, zip), zip);
    zipper_->prefill();
  }

  const NeedleText& text() const { return text_; }

  KeepSet select(const std::string& method, double ratio) {
    if (method == "full") {
      const KvShape& shape = zipper_->full_rows().global.shape();
      return keep_all(shape.n_layer, shape.n_kv_head, options_.length);
    }
    return select_layer_rows(*model_.state(), *zipper_, *find_selection(method), ratio,
                             options_.block_rows);
  }

  // One pass of all queries and their answers.
  std::vector<NeedleLoss> losses(const KeepSet& kept) {
    const FullRows rows = zipper_->full_rows();
    SegmentTable past = segment_table(*model_.state());
    past.add(rows.global, 0, kept);
    past.add_window(rows.window);
    std::vector<int32_t> outputs(queries_.size());
    std::iota(outputs.begin(), outputs.end(), 0);
    const auto logits =
        run_pass(*model_.state(), runner_, past, static_cast<int>(past.size()), nullptr,
                 {queries_, options_.length, outputs}, {.cancel = cancel_});
    std::vector<NeedleLoss> all;
    for (size_t first = 0; first < queries_.size(); first += kItemTokens) {
      all.push_back(loss(logits, first));
    }
    return all;
  }

 private:
  // Of the query at token `first`; the logits of each token say what comes after it.
  NeedleLoss loss(std::span<const float> logits, size_t first) const {
    const auto n_vocab = static_cast<size_t>(model_.state()->hp.n_vocab);
    NeedleLoss loss{.nll = 0, .found = true, .output = {}};
    for (size_t at = first + kGivenTokens; at < first + kItemTokens; ++at) {
      const auto row = logits.subspan((at - 1) * n_vocab, n_vocab);
      const Token likeliest =
          static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin());
      loss.nll += token_nll(row, queries_[at]);
      loss.found &= likeliest == queries_[at];
      loss.output += fmt::format("{}{}", loss.output.empty() ? "" : " ", likeliest);
    }
    return loss;
  }

  const Model& model_;
  const ExperimentOptions& options_;
  const CancelToken* cancel_;
  GraphRunner runner_;
  NeedleText text_;
  std::vector<Token> queries_;
  std::optional<Zipper> zipper_;
};

std::vector<AnswerRecord> run_needles(const Model& model, const ExperimentOptions& options,
                                      int64_t number, const CancelToken* cancel) {
  NeedleRun run(model, options, number, cancel);
  const std::vector<NeedleLoss> full = run.losses(run.select("full", 1));
  const KvShape shape = global_shape(*model.state());
  const auto row_bytes = static_cast<int64_t>(shape.pair_size());
  std::vector<AnswerRecord> records;
  for (const auto& [method, ratio] : experiment_variants(options)) {
    const KeepSet kept = run.select(method, ratio);
    const std::vector<NeedleLoss> losses = method == "full" ? full : run.losses(kept);
    for (size_t at = 0; at < losses.size(); ++at) {
      const Needle& needle = run.text().needles[at];
      const double delta = losses[at].nll - full[at].nll;
      AnswerRecord record{
          .key = {context_id(options, number), fmt::format("needle {}", at), method, ratio},
          .part = needle.place,
          .output = losses[at].output,
          .gold = {fmt::format("{} {}", needle.query[2], needle.query[3])},
          .scores = {delta < kIntactNats ? 1.0 : 0.0, losses[at].found ? 1.0 : 0.0, delta,
                     losses[at].nll}};
      record.context_tokens = options.length;
      record.pairs_kept = kept.pairs_kept();
      record.pairs_total = kept.pairs_total();
      record.kv_bytes = record.pairs_kept * row_bytes;
      record.kv_bytes_full = record.pairs_total * row_bytes;
      record.output_tokens = kItemTokens - kGivenTokens;
      record.stop_reason = "forced";
      records.push_back(std::move(record));
    }
  }
  return records;
}

void check_needle_method(const std::string& method) {
  if (method == "full" || find_selection(method)) return;
  fail(ErrorKind::kInvalidArgument, "'{}' is no selection of rows: expected full, {}", method,
       kSelectionNames);
}

std::vector<std::string> needle_questions(const Model&, const ExperimentOptions& options) {
  std::vector<std::string> ids;
  for (int64_t at = 0; at < options.n_needles; ++at) ids.push_back(fmt::format("needle {}", at));
  return ids;
}

}  // namespace

Experiment needle_experiment() {
  return {.name = "vestige-needle",
          .summary = "Needles after a compression before any query, by what ranks the rows",
          .methods = {"full", "sigma", "sigma-row", "sigma-content", "h2o", "h2o-recent", "snapkv",
                      "streaming-llm"},
          .known_methods = kSelectionNames,
          .ratios = {0.125, 0.03125},
          .metrics = {"intact", "found", "delta_nll", "nll"},
          .latent_rows = false,
          .check_method = check_needle_method,
          .questions = needle_questions,
          .run = run_needles};
}

}  // namespace ctxzip::eval
