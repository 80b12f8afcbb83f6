#include "eval/query_capture.h"

#include <ggml.h>

#include <algorithm>
#include <deque>

#include "attention/cache_attention.h"
#include "core/fail.h"
#include "engine/graph_runner.h"
#include "engine/passes.h"
#include "score/branch_sigma.h"

namespace ctxzip::eval {
namespace {

constexpr size_t kBatch = 512;

// Notes down queries on their way to the seam behind it.
class QueryCapture final : public AttentionSeam {
 public:
  QueryCapture(AttentionSeam& inner, int64_t n_layer) : inner_(inner) {
    queries_.resize(static_cast<size_t>(n_layer));
  }

  // (layer of the model): (token, head, row_dim) of all runs so far.
  std::deque<std::vector<float>>& queries() { return queries_; }

  ggml_tensor* attend(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                      const AttentionInput& in, bool) override {
    AttentionInput noted = in;
    noted.q = ggml_map_custom1(context, in.q, note, 1, &queries_[static_cast<size_t>(layer)]);
    // Later layers follow even where their output is unused: their queries are wanted.
    return inner_.attend(context, graph, layer, noted, false);
  }
  ggml_tensor* state_before(ggml_context* context, int64_t layer) override {
    return inner_.state_before(context, layer);
  }
  void keep_state(ggml_context* context, ggml_cgraph* graph, int64_t layer,
                  std::initializer_list<ggml_tensor*> parts) override {
    inner_.keep_state(context, graph, layer, parts);
  }

 private:
  static void note(ggml_tensor* dst, const ggml_tensor* q, int, int, void* data) {
    auto& all = *static_cast<std::vector<float>*>(data);
    const auto* values = static_cast<const float*>(q->data);
    const auto n = static_cast<size_t>(ggml_nelements(q));
    std::copy_n(values, n, static_cast<float*>(dst->data));
    all.insert(all.end(), values, values + n);
  }

  AttentionSeam& inner_;
  std::deque<std::vector<float>> queries_;
};

}  // namespace

TextCapture capture_text(const Model& model, std::span<const Token> tokens,
                         const CancelToken* cancel) {
  const detail::ModelState& state = *model.state();
  const Hyperparameters& hp = state.hp;
  CHECK(hp.latent.content > 0 && hp.layers.n_local() == 0);
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  const SegmentTable nothing = segment_table(state);
  DenseCache rows(global_shape(state), n_tokens);
  DenseCache window = make_window_store(state, static_cast<int64_t>(kBatch));
  StateTrack states(first_states(state));
  CacheAttention attention(attention_setup(state), nothing, 0, nullptr);
  QueryCapture capture(attention, hp.n_layer);
  GraphRunner runner(state);
  const std::vector<int32_t> last(1, 0);  // logits of any token: no layer ends the pass early
  for (size_t done = 0; done < tokens.size();) {
    const auto part = tokens.subspan(done, std::min(kBatch, tokens.size() - done));
    const AppendTarget target = {.global = {&rows, rows.n_rows()},
                                 .local = {&window, 0},
                                 .states = {&states.now(), &states.next()}};
    attention.set_targets({&target, 1});
    runner.run({part, static_cast<int64_t>(done), last}, capture, attention.own_row_capacity(),
               {.cancel = cancel});
    rows.extend(static_cast<int64_t>(part.size()));
    states.advance();
    done += part.size();
  }
  TextCapture text{.shape = {.latent = hp.latent.content,
                             .branch = hp.latent.branch,
                             .n_head = hp.n_head,
                             .scale = hp.attention_scale},
                   .layers = {}};
  for (int64_t layer = 0; layer < rows.shape().n_layer; ++layer) {
    const auto number = static_cast<size_t>(hp.layers.global_layers()[static_cast<size_t>(layer)]);
    text.layers.push_back(
        {.rows = row_parts(rows, layer, 0, text.shape.latent, RowPart::kWhole, 0, n_tokens),
         .queries = std::move(capture.queries()[number])});
  }
  return text;
}

}  // namespace ctxzip::eval
