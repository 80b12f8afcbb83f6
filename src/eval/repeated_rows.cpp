#include "eval/repeated_rows.h"

#include <algorithm>
#include <cstring>

#include "core/fail.h"
#include "engine/finish.h"
#include "engine/graph_runner.h"
#include "engine/passes.h"
#include "format/byte_reader.h"
#include "score/random.h"
#include "select/select.h"

namespace ctxzip::eval {
namespace {

// Fills rows [n_rows, n_wanted) of one head with those before, from the first on.
void repeat(std::byte* rows, size_t row_size, int64_t n_rows, int64_t n_wanted) {
  const size_t wanted = static_cast<size_t>(n_wanted) * row_size;
  for (size_t done = static_cast<size_t>(n_rows) * row_size; done < wanted;) {
    const size_t n = std::min(done, wanted - done);
    std::memcpy(rows + done, rows, n);
    done += n;
  }
}

class ByteWriter {
 public:
  template <typename T>
  void value(T number) {
    append(std::as_bytes(std::span(&number, 1)));
  }
  void append(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }
  // `n_wanted` rows, those of `rows` in turn.
  void repeat_rows(std::span<const std::byte> rows, size_t row_size, int64_t n_wanted) {
    const size_t wanted = static_cast<size_t>(n_wanted) * row_size;
    for (size_t done = 0; done < wanted;) {
      const size_t n = std::min(rows.size(), wanted - done);
      append(rows.first(n));
      done += n;
    }
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace

RepeatedRows::RepeatedRows(const Model& model, ZipPlan plan, const ZipOptions& options,
                           int64_t n_first)
    : model_(model),
      plan_(std::move(plan)),
      options_(options),
      full_(global_shape(*model.state()), plan_.n_positions()) {
  const detail::ModelState& state = *model_.state();
  if (state.hp.layers.n_local() > 0 || state.hp.layers.n_recurrent() > 0) {
    fail(ErrorKind::kUnsupported,
         "rows can be repeated only where every layer keeps all of them; this model has windows "
         "or recurrent states: measure with a whole prefill");
  }
  GraphRunner runner(state);
  DenseCache window = make_window_store(state, options_.batch_tokens);
  StateTrack states(first_states(state));
  std::vector<Token> tokens = plan_.layout.prefix;
  tokens.insert(tokens.end(), plan_.context.begin(), plan_.context.end());
  const int64_t n = std::min(n_first, plan_.n_positions());
  prefill_rows(state, runner, segment_table(state), std::span(tokens).first(static_cast<size_t>(n)),
               0, {full_, window, states}, options_.batch_tokens, options_.cancel, [](int64_t) {});
  const KvShape& shape = full_.shape();
  for (int64_t layer = 0; layer < shape.n_layer; ++layer) {
    for (int64_t head = 0; head < shape.n_kv_head; ++head) {
      repeat(full_.k_rows(layer, head), shape.row_size(), n, plan_.n_positions());
      if (shape.value_in_key) continue;
      repeat(full_.v_rows(layer, head), shape.row_size(), n, plan_.n_positions());
    }
  }
  full_.extend(plan_.n_positions() - n);
}

Context RepeatedRows::copy(double ratio) const {
  const detail::ModelState& state = *model_.state();
  const KvShape& shape = full_.shape();
  const int64_t n_context = plan_.n_context();
  Budget budget;
  budget.ratio = ratio;
  const KeepSet kept = select_pairs(
      random_scores(shape.n_layer, shape.n_kv_head, n_context, options_.seed),
      pairs_for_budget(budget, context_size(state, plan_, options_)), options_.allocation);
  ZipOptions used = options_;
  used.method = Method::kRandom;
  ContextRows rows{
      .layers = state.hp.layers,
      .global = compact_copy(full_, plan_.n_prefix(), kept, stored_type(options_.kv)),
      .local = freeze_window(make_window_store(state, 1), state.hp.layers, plan_.n_positions()),
      .states = first_states(state)};
  return make_context(model_, plan_, used, std::move(rows), {}, {});
}

// The layout: a magic number and the sequence; what llama_kv_cache::state_write writes, which is
// streams, cells with position and sequences, then rows of K and of V, layer by layer.
std::vector<std::byte> repeated_llama_state(std::span<const std::byte> state, int64_t n_cells) {
  ByteReader reader(state);
  ByteWriter writer;
  writer.append(reader.take(sizeof(uint32_t) + sizeof(int32_t), "the head"));
  const auto n_stream = reader.value<uint32_t>("the number of streams");
  const auto n_given = reader.value<uint32_t>("the number of cells");
  if (n_stream != 1 || n_given == 0) reader.refuse("{} streams, {} cells", n_stream, n_given);
  writer.value(uint32_t{1});
  writer.value(static_cast<uint32_t>(n_cells));
  for (uint32_t cell = 0; cell < n_given && reader.ok(); ++cell) {
    reader.value<int32_t>("a position");
    if (reader.value<uint32_t>("sequences of a cell") != 1) reader.refuse("several sequences");
    reader.value<int32_t>("a sequence");
  }
  for (int64_t cell = 0; cell < n_cells; ++cell) {
    writer.value(static_cast<int32_t>(cell));
    writer.value(uint32_t{1});
    writer.value(int32_t{0});
  }
  const auto transposed = reader.value<uint32_t>("the order of values");
  if (transposed != 0) reader.refuse("transposed values");
  writer.value(transposed);
  writer.value(reader.value<uint32_t>("the number of layers"));
  while (reader.ok() && reader.left() > 0) {
    writer.value(reader.value<int32_t>("a row type"));
    const auto row_size = reader.value<uint64_t>("a row size");
    if (row_size == 0 || row_size > state.size()) reader.refuse("rows of {} bytes", row_size);
    const auto rows = reader.take(n_given * row_size, "rows");
    if (!reader.ok()) break;
    writer.value(row_size);
    writer.repeat_rows(rows, static_cast<size_t>(row_size), n_cells);
  }
  if (!reader.ok()) {
    fail(ErrorKind::kUnsupported,
         "libllama's state is not that of plain rows ({}): measure with a whole prefill",
         reader.error());
  }
  return writer.take();
}

}  // namespace ctxzip::eval
