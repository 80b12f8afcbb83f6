#include "samples.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "format/ctz_layout.h"
#include "format/ctz_recall.h"
#include "recall/calibrator.h"
#include "recall/partition.h"

namespace ctxzip {
namespace {

constexpr int64_t kVocab = 1000;

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(engine_() % limit); }
  bool chance(double p) { return below(1'000'000) < static_cast<uint32_t>(p * 1'000'000); }
  std::vector<int32_t> tokens(int64_t n) {
    std::vector<int32_t> tokens;
    for (int64_t at = 0; at < n; ++at) tokens.push_back(static_cast<int32_t>(below(kVocab)));
    return tokens;
  }
  void fill(std::byte* to, size_t n_bytes) {
    for (size_t at = 0; at < n_bytes; ++at) to[at] = static_cast<std::byte>(below(256));
  }

 private:
  std::mt19937 engine_;
};

CtzMeta make_meta(const SampleOptions& options, Random& random) {
  CtzMeta meta;
  meta.model = {.architecture = "llama",
                .n_layer = static_cast<int64_t>(options.layers.size()),
                .n_embd = 576,
                .n_head = 9,
                .n_kv_head = options.n_kv_head,
                .head_dim = options.head_dim,
                .n_vocab = kVocab,
                .layers = options.layers,
                .window = options.window,
                .rope_base = 100000.0,
                .rope_base_local = options.window > 0 ? 10000.0 : 0.0,
                .rope_scale = 1.0,
                .rope_scaling = "none",
                .rope_factors_hash = 0,
                .tensor_table_hash = 0x0123456789abcdef,
                .weights_hash = 0xfedcba9876543210,
                .tokenizer_hash = 42,
                .value_dim = options.value_dim,
                .state_size = options.state_size,
                .settings_hash = options.value_dim + options.state_size > 0 ? 0xabcu : 0u};
  meta.model_name = "Sample Model é";
  meta.prefix_tokens = random.tokens(options.n_prefix);
  meta.context_tokens = random.tokens(options.n_context);
  meta.question_tokens = random.tokens(2);
  meta.turn_tokens = random.tokens(4);
  meta.next_turn_tokens = random.tokens(3);
  meta.templated = true;
  meta.method = "kvzip";
  meta.allocation = "global";
  meta.recon_attention = "full";
  meta.schedule = "streaming";
  meta.chunk_tokens = 2048;
  meta.seed = 7;
  meta.delta_nll = -0.004;
  meta.delta_nll_probe = 0.0125;
  return meta;
}

// Arbitrary numbers that fit together.
RecallContext make_recall(const SampleOptions& options, const ModelFingerprint& model,
                          Random& random) {
  const MlaShape shape = recall_shape(model);
  RecallContext recall;
  recall.options.block_rows = 64;
  recall.options.keep_ratio = 0.25;
  recall.options.window = WindowForm::kPrefix;
  recall.control = true;
  const auto numbers = [&](int64_t n) {
    std::vector<float> values;
    for (int64_t at = 0; at < n; ++at) {
      values.push_back(static_cast<float>(random.below(2000)) / 1000 - 1);
    }
    return values;
  };
  for (const char kind : options.layers) {
    if (kind != 'g') continue;
    RecallState& state = recall.layers.emplace_back();
    state.n_closed = options.n_closed;
    state.n_tail = options.n_prefix + options.n_context - options.n_closed;
    state.sigma = numbers(state.n_closed);
    state.kept = select_rows(state.sigma, {recall.options.keep_ratio, recall.options.n_sinks, 0});
    state.basis = numbers(sketch_rank(shape, recall.options) * shape.latent);
    CalibrationRecord& record = state.calibration;
    record.state = {.phase = CalibrationPhase::kStale,
                    .notes = kPartitionChanged | kGateOpen,
                    .z = 1.25,
                    .rank = 3,
                    .n_hard = 20,
                    .n_steps = 16,
                    .n_gated = 1};
    record.gates = numbers(shape.n_head);
    record.gates[0] = -std::numeric_limits<float>::infinity();
    record.stage = options.n_observed > 0 ? CalibrationStage::kObserve : CalibrationStage::kDone;
    record.n_labelled = options.n_observed / 2;
    record.labelled_rows = options.n_observed > 1 ? 5 : 0;
    const int64_t n = options.n_observed * shape.n_head;
    record.queries = numbers(n * shape.row_dim());
    record.best_kept = numbers(n);
    record.entropy = numbers(n);
    record.best_archived = numbers(n);
    for (int64_t at = 0; at < n; ++at) {
      record.target.push_back(random.below(static_cast<uint32_t>(options.n_closed)));
    }
  }
  return recall;
}

}  // namespace

Sample make_sample(const SampleOptions& options) {
  Random random(options.seed);
  Sample sample;
  sample.meta = make_meta(options, random);
  const LayerMap layers(options.layers, options.window);
  const auto store = [&](int64_t n_layer, int64_t n_rows) {
    const KvShape shape = {.n_layer = n_layer,
                           .n_kv_head = options.n_kv_head,
                           .head_dim = options.head_dim,
                           .row_type = window_row_type(options.row_type),
                           .value_in_key = options.value_dim > 0};
    DenseCache rows(shape, n_rows);
    for (int64_t head = 0; head < n_layer * options.n_kv_head; ++head) {
      const int64_t layer = head / options.n_kv_head;
      const size_t n_bytes = static_cast<size_t>(n_rows) * shape.row_size();
      random.fill(rows.k_rows(layer, head % options.n_kv_head), n_bytes);
      random.fill(rows.v_rows(layer, head % options.n_kv_head), n_bytes);
    }
    rows.extend(n_rows);
    return rows;
  };
  const int64_t n_rows = options.n_prefix + options.n_context;
  DenseCache full = store(layers.n_global(), n_rows);
  KeepSet kept{.n_layer = layers.n_global(),
               .n_kv_head = options.n_kv_head,
               .n_context = options.n_context,
               .rows = {}};
  for (int64_t head = 0; head < layers.n_global() * options.n_kv_head; ++head) {
    std::vector<uint32_t>& rows = kept.rows.emplace_back();
    if (head == 0 && options.ratio < 1) continue;
    for (uint32_t row = 0; row < options.n_context; ++row) {
      if (random.chance(options.ratio)) rows.push_back(row);
    }
  }
  const DenseCache window = store(layers.n_local(), std::min(n_rows, layers.window() + 2));
  sample.rows = {.layers = layers,
                 .global = compact(full, options.n_prefix, std::move(kept), options.row_type),
                 .local = freeze_window(window, layers, n_rows),
                 .states = empty_states(layers.n_recurrent(), options.state_size)};
  for (float& value : sample.rows.states.values) {
    value = static_cast<float>(random.below(2000)) / 1000 - 1;
  }
  if (options.n_closed >= 0) {
    sample.meta.recall =
        std::make_shared<const RecallContext>(make_recall(options, sample.meta.model, random));
  }
  return sample;
}

std::vector<std::byte> to_bytes(const Sample& sample) {
  std::vector<std::byte> bytes;
  write_ctz(sample.meta, sample.rows, [&bytes](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  });
  return bytes;
}

namespace {

void expect_same_rows(const ZippedRows& expected, const ZippedRows& found) {
  EXPECT_EQ(expected.shape, found.shape);
  EXPECT_EQ(expected.n_prefix, found.n_prefix);
  EXPECT_EQ(expected.kept, found.kept);
  EXPECT_EQ(expected.k_offset, found.k_offset);
  EXPECT_EQ(expected.v_offset, found.v_offset);
  for (int64_t layer = 0; layer < expected.shape.n_layer; ++layer) {
    for (int64_t head = 0; head < expected.shape.n_kv_head; ++head) {
      const Segment x = expected.segment(layer, head);
      const Segment y = found.segment(layer, head);
      ASSERT_EQ(x.n_rows, y.n_rows);
      EXPECT_EQ(x.quantised, y.quantised);
      if (x.n_rows == 0) continue;
      EXPECT_EQ(std::memcmp(x.k, y.k, stored_key_bytes(expected.shape, x.n_rows)), 0)
          << layer << " " << head;
      EXPECT_EQ(std::memcmp(x.v, y.v, stored_value_bytes(expected.shape, x.n_rows)), 0)
          << layer << " " << head;
    }
  }
}

}  // namespace

void expect_same(const Sample& expected, const CtzFile& found) {
  const CtzMeta& a = expected.meta;
  const CtzMeta& b = found.meta;
  EXPECT_EQ(a.model, b.model);
  EXPECT_EQ(a.model_name, b.model_name);
  EXPECT_EQ(a.prefix_tokens, b.prefix_tokens);
  EXPECT_EQ(a.context_tokens, b.context_tokens);
  EXPECT_EQ(a.question_tokens, b.question_tokens);
  EXPECT_EQ(a.turn_tokens, b.turn_tokens);
  EXPECT_EQ(a.next_turn_tokens, b.next_turn_tokens);
  EXPECT_EQ(a.templated, b.templated);
  EXPECT_EQ(a.method, b.method);
  EXPECT_EQ(a.allocation, b.allocation);
  EXPECT_EQ(a.recon_attention, b.recon_attention);
  EXPECT_EQ(a.schedule, b.schedule);
  EXPECT_EQ(a.chunk_tokens, b.chunk_tokens);
  EXPECT_EQ(a.seed, b.seed);
  EXPECT_EQ(a.delta_nll, b.delta_nll);
  EXPECT_EQ(a.delta_nll_probe, b.delta_nll_probe);
  EXPECT_EQ(expected.rows.layers, found.rows.layers);
  expect_same_rows(expected.rows.global, found.rows.global);
  expect_same_rows(expected.rows.local, found.rows.local);
  EXPECT_EQ(expected.rows.states, found.rows.states);
  ASSERT_EQ(a.recall == nullptr, b.recall == nullptr);
  if (a.recall == nullptr) return;
  EXPECT_EQ(a.recall->layers, b.recall->layers);
  EXPECT_EQ(a.recall->control, b.recall->control);
  EXPECT_EQ(a.recall->options.block_rows, b.recall->options.block_rows);
  EXPECT_EQ(a.recall->options.keep_ratio, b.recall->options.keep_ratio);
  EXPECT_EQ(a.recall->options.window, b.recall->options.window);
}

}  // namespace ctxzip
