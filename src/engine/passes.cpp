#include "engine/passes.h"

#include <algorithm>

namespace ctxzip {

DenseCache make_window_store(const detail::ModelState& model, int64_t batch_tokens) {
  return {local_shape(model), model.hp.layers.window_rows() + batch_tokens};
}

void prefill_rows(const detail::ModelState& model, GraphRunner& runner, const SegmentTable& past,
                  std::span<const Token> tokens, int64_t first_position,
                  const PrefillStores& stores, int64_t batch_tokens, const CancelToken* cancel,
                  const std::function<void(int64_t)>& on_rows) {
  DenseCache& window = stores.window;
  CacheAttention attention(attention_setup(model), past, static_cast<int>(past.size()),
                           stores.score, stores.queries);
  for (size_t done = 0; done < tokens.size();) {
    const auto part =
        tokens.subspan(done, std::min(static_cast<size_t>(batch_tokens), tokens.size() - done));
    const auto n = static_cast<int64_t>(part.size());
    if (window.n_rows() + n > window.capacity()) {
      window.drop_front(window.n_rows() - model.hp.layers.window_rows());
    }
    const AppendTarget target = {.global = {&stores.global, stores.global.n_rows()},
                                 .local = {&window, window.n_rows()},
                                 .states = {&stores.states.now(), &stores.states.next()}};
    attention.set_targets({&target, 1});
    runner.run({part, first_position + static_cast<int64_t>(done), {}}, attention,
               attention.own_row_capacity(), {.cancel = cancel});
    stores.global.extend(n);
    window.extend(n);
    stores.states.advance();
    done += part.size();
    on_rows(static_cast<int64_t>(done));
  }
}

std::span<const float> run_pass(const detail::ModelState& model, GraphRunner& runner,
                                const SegmentTable& past, int own_place, const ScoreSink* score,
                                const Batch& batch, const RunControl& control) {
  DenseCache own(one_layer_shape(model), static_cast<int64_t>(batch.tokens.size()));
  CacheAttention attention(attention_setup(model), past, own_place, score);
  const AppendTarget target = {.global = {&own, 0},
                               .local = {&own, 0},
                               .one_layer = true,
                               .states = {.before = past.states(), .after = nullptr}};
  attention.set_targets({&target, 1});
  return runner.run(batch, attention, 0, control);
}

}  // namespace ctxzip
