#include "engine/context_tail.h"

#include <algorithm>
#include <numeric>

#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr int64_t kPromptBatch = 512;
// Rows that may be added when the context itself already fills the trained length.
constexpr int64_t kTailBeyondTraining = 8192;
constexpr int64_t kShortestTail = 256;

int64_t tail_capacity(const detail::ContextState& context) {
  const int64_t room = context.model.state()->hp.n_ctx_train - context.rows.n_positions();
  return room >= kShortestTail ? room : kTailBeyondTraining;
}

const detail::ModelState& model_of(const detail::ContextState& context) {
  return *context.model.state();
}

SegmentTable rows_of(const detail::ContextState& context) {
  const detail::ModelState& model = model_of(context);
  RowType stored = context.rows.global.shape.row_type;
  if (is_quantised(stored)) stored = RowType::kF16;  // as its windows and every tail
  const RowType wanted = global_shape(model).row_type;
  if (stored != wanted) {
    fail(ErrorKind::kMismatch, "the context has {} rows, but the model was loaded for {} rows",
         row_type_name(stored), row_type_name(wanted));
  }
  SegmentTable table = segment_table(model);
  table.add(context.rows);
  return table;
}

}  // namespace

ContextTail::ContextTail(std::shared_ptr<const detail::ContextState> context)
    : context_(std::move(context)),
      past_(rows_of(*context_)),
      rows_(model_of(*context_).hp.layers, global_shape(model_of(*context_)),
            local_shape(model_of(*context_)), context_->rows.states, tail_capacity(*context_)),
      attention_(attention_setup(model_of(*context_)), past_, static_cast<int>(past_.size()),
                 nullptr),
      prompt_runner_(model_of(*context_)),
      decode_runner_(model_of(*context_)) {}

AppendTarget ContextTail::target() {
  const int64_t first = rows_.n_rows();
  return {.global = {&rows_.global(), first},
          .local = {&rows_.local(), first},
          .states = {&rows_.states().now(), &rows_.states().next()}};
}

std::span<const float> ContextTail::feed(std::span<const Token> tokens, const CancelToken* cancel) {
  std::span<const float> logits;
  while (!tokens.empty()) {
    const size_t n = std::min<size_t>(tokens.size(), kPromptBatch);
    const bool last = n == tokens.size();
    const std::vector<int32_t> outputs(last ? 1 : 0, static_cast<int32_t>(n - 1));
    const AppendTarget to = target();
    attention_.set_targets({&to, 1});
    GraphRunner& runner = n == 1 ? decode_runner_ : prompt_runner_;
    logits = runner.run({tokens.first(n), next_position(), outputs}, attention_,
                        attention_.own_row_capacity(), {.cancel = cancel});
    rows_.extend(static_cast<int64_t>(n));
    tokens = tokens.subspan(n);
  }
  return logits;
}

TailGroup::TailGroup(std::shared_ptr<const detail::ContextState> context)
    : context_(std::move(context)),
      past_(rows_of(*context_)),
      attention_(attention_setup(model_of(*context_)), past_, static_cast<int>(past_.size()),
                 nullptr),
      runner_(model_of(*context_)) {}

std::span<const float> TailGroup::feed_in_turn(std::span<ContextTail* const> tails,
                                               std::span<const Token> tokens,
                                               const CancelToken* cancel) {
  logits_.clear();
  for (size_t lane = 0; lane < tails.size(); ++lane) {
    const auto one = tails[lane]->feed(tokens.subspan(lane, 1), cancel);
    logits_.insert(logits_.end(), one.begin(), one.end());
  }
  return logits_;
}

std::span<const float> TailGroup::feed(std::span<ContextTail* const> tails,
                                       std::span<const Token> tokens, const CancelToken* cancel) {
  CHECK(!tails.empty() && tails.size() == tokens.size());
  if (model_of(*context_).hp.layers.n_recurrent() > 0) return feed_in_turn(tails, tokens, cancel);
  std::vector<AppendTarget> targets;
  std::vector<int32_t> positions;
  for (ContextTail* tail : tails) {
    CHECK(&tail->context() == context_.get());
    targets.push_back(tail->target());
    positions.push_back(static_cast<int32_t>(tail->next_position()));
  }
  std::vector<int32_t> outputs(tails.size());
  std::iota(outputs.begin(), outputs.end(), 0);
  attention_.set_targets(targets);
  const auto logits =
      runner_.run({.tokens = tokens, .output_rows = outputs, .positions = positions}, attention_,
                  attention_.own_row_capacity(), {.cancel = cancel});
  for (ContextTail* tail : tails) tail->rows().extend(1);
  return logits;
}

}  // namespace ctxzip
