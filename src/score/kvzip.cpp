#include "score/kvzip.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"

namespace ctxzip {

namespace {

int64_t partial_tokens(int64_t n_context) {
  return static_cast<int64_t>(std::ceil(kPartialInput * static_cast<double>(n_context)));
}

}  // namespace

ReconstructionPass reconstruction_pass(const RepeatPrompts& prompts,
                                       const std::vector<Token>& context, int64_t begin,
                                       int64_t end) {
  CHECK(begin >= 0 && begin <= end && end <= static_cast<int64_t>(context.size()));
  ReconstructionPass pass{.begin = begin, .end = end, .input = {}, .n_prompt = 0};
  std::vector<Token>& input = pass.input;
  if (begin == 0) {
    input = prompts.first;
  } else {
    input = prompts.later;
    input.insert(input.end(), context.begin() + std::max<int64_t>(0, begin - kCueTokens),
                 context.begin() + begin);
  }
  input.insert(input.end(), prompts.turn.begin(), prompts.turn.end());
  pass.n_prompt = static_cast<int64_t>(input.size());
  input.insert(input.end(), context.begin() + begin, context.begin() + end);
  return pass;
}

std::vector<ReconstructionPass> plan_reconstruction(const RepeatPrompts& prompts,
                                                    const std::vector<Token>& context,
                                                    int64_t chunk_tokens, ReconInput input) {
  CHECK(chunk_tokens >= 1);
  const int64_t n_context = static_cast<int64_t>(context.size());
  const int64_t begin =
      input == ReconInput::kLast ? n_context - partial_tokens(n_context) : int64_t{0};
  const int64_t end = input == ReconInput::kFirst    ? partial_tokens(n_context)
                      : input == ReconInput::kPrompt ? 0
                                                     : n_context;
  std::vector<ReconstructionPass> passes;
  int64_t fed = begin;
  do {
    const int64_t next = std::min(end, fed + chunk_tokens);
    passes.push_back(reconstruction_pass(prompts, context, fed, next));
    fed = next;
  } while (fed < end);
  if (input == ReconInput::kFull) return passes;
  for (ReconstructionPass& pass : passes) {
    pass.begin = 0;
    pass.end = n_context;
  }
  return passes;
}

int64_t longest_prompt(const RepeatPrompts& prompts) {
  const size_t start =
      std::max(prompts.first.size(), prompts.later.size() + static_cast<size_t>(kCueTokens));
  return static_cast<int64_t>(start + prompts.turn.size());
}

PassAttention chunk_attention(SegmentTable prefix_and_chunk, int64_t chunk_begin, Scores& scores,
                              ReconScore score, const float* value_logs) {
  CHECK((value_logs != nullptr) == (score == ReconScore::kNormalised));
  return {.past = std::move(prefix_and_chunk),
          .own_place = 2,
          .sink = {.statistic = score == ReconScore::kLogit ? ColumnStatistic::kMaxLogit
                                                            : ColumnStatistic::kMaxLog,
                   .n_segments = 3,
                   .columns = 1,
                   .values = scores.values.data() + chunk_begin,
                   .head_stride = scores.n_context,
                   .column_logs = value_logs == nullptr ? nullptr : value_logs + chunk_begin}};
}

PassAttention pass_attention(const FullRows& rows, const ReconstructionPass& pass,
                             ReconAttention attention, Scores& scores, ReconScore score,
                             const float* value_logs) {
  const DenseCache& full = rows.global;
  const int64_t first = rows.n_prefix + pass.begin;
  const int64_t last = rows.n_prefix + pass.end;
  SegmentTable past(rows.layers, full.shape());
  past.add(full, 0, rows.n_prefix);
  past.add(full, first, last);
  PassAttention result = chunk_attention(std::move(past), pass.begin, scores, score, value_logs);
  if (attention == ReconAttention::kFull) {
    result.past.add(full, rows.n_prefix, first);
    result.past.add(full, last, full.n_rows());
  }
  result.past.add_window(rows.window);
  return result;
}

Scores start_scores(int64_t n_layer, int64_t n_kv_head, int64_t n_context) {
  Scores scores{.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .values = {}};
  scores.values.assign(static_cast<size_t>(scores.pairs()), -INFINITY);
  return scores;
}

void finish_scores(Scores& scores, ReconScore score) {
  if (score == ReconScore::kLogit) return;
  for (float& value : scores.values) value = std::exp(value);
}

}  // namespace ctxzip
