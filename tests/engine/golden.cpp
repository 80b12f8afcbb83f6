#include "engine/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "core/fail.h"
#include "engine/graph_runner.h"
#include "score/output_norms.h"
#include "select/select.h"
#include "support/engine_run.h"

namespace ctxzip::test {
namespace {

std::vector<uint8_t> decode_base64(const std::string& text) {
  static const std::string kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char digit : text) {
    const size_t value = kDigits.find(digit);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    n_bits += 6;
    if (n_bits >= 8) bytes.push_back(static_cast<uint8_t>(bits >> (n_bits -= 8)));
  }
  return bytes;
}

// Single-precision sums in another order; the golden values are double precision.
constexpr double kMaxRelativeDifference = 1e-3;
// Rows this close to the threshold may fall on either side of it.
constexpr double kNearThreshold = 2e-3;

}  // namespace

nlohmann::json read_golden(const std::string& name) {
  std::ifstream file(data_path("golden/" + name));
  CHECK(file.good());
  return nlohmann::json::parse(file);
}

KeepSet decode_bitmap(const std::string& base64, int64_t n_layer, int64_t n_kv_head,
                      int64_t n_context) {
  const std::vector<uint8_t> bytes = decode_base64(base64);
  const int64_t per_head = (n_context + 7) / 8;
  CHECK(static_cast<int64_t>(bytes.size()) == n_layer * n_kv_head * per_head);
  KeepSet kept{.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .rows = {}};
  for (int64_t head = 0; head < n_layer * n_kv_head; ++head) {
    std::vector<uint32_t>& rows = kept.rows.emplace_back();
    for (int64_t row = 0; row < n_context; ++row) {
      const uint8_t byte = bytes[static_cast<size_t>(head * per_head + row / 8)];
      if ((byte >> (row % 8) & 1) != 0) rows.push_back(static_cast<uint32_t>(row));
    }
  }
  return kept;
}

double overlap(const KeepSet& expected, const KeepSet& found) {
  CHECK(expected.rows.size() == found.rows.size());
  return static_cast<double>(pairs_shared(expected, found)) /
         static_cast<double>(expected.pairs_kept());
}

Golden load_golden(const std::string& name) {
  Golden golden{.json = read_golden(name), .prefix = {}, .context = {}};
  golden.prefix = golden.json["prefix"].get<std::vector<Token>>();
  golden.context = golden.json["context"].get<std::vector<Token>>();
  return golden;
}

Scores golden_scores(const nlohmann::json& json) {
  Scores scores{.n_layer = static_cast<int64_t>(json.size()),
                .n_kv_head = static_cast<int64_t>(json[0].size()),
                .n_context = static_cast<int64_t>(json[0][0].size()),
                .values = {}};
  for (const auto& layer : json) {
    for (const auto& head : layer) {
      for (const auto& value : head) scores.values.push_back(value.get<float>());
    }
  }
  return scores;
}

Scores run_golden_passes(const Model& model, const Golden& golden, ReconAttention attention,
                         ReconScore kind) {
  const detail::ModelState& state = *model.state();
  const KvShape shape = global_shape(state);
  const int64_t n_prefix = static_cast<int64_t>(golden.prefix.size());
  const int64_t n_context = static_cast<int64_t>(golden.context.size());
  DenseCache full(shape, n_prefix + n_context);
  GraphRunner runner(state);
  const SegmentTable nothing = segment_table(state);
  {
    std::vector<Token> tokens = golden.prefix;
    tokens.insert(tokens.end(), golden.context.begin(), golden.context.end());
    CacheAttention prefill(attention_setup(state), nothing, 0, nullptr);
    const AppendTarget target = {.global = {&full, 0}};
    prefill.set_targets({&target, 1});
    runner.run({tokens, 0, {}}, prefill, 0, {});
    full.extend(static_cast<int64_t>(tokens.size()));
  }
  Scores scores = start_scores(shape.n_layer, shape.n_kv_head, n_context);
  std::vector<float> value_logs;
  if (kind == ReconScore::kNormalised) {
    value_logs.resize(static_cast<size_t>(shape.n_layer * state.hp.n_head * n_context));
    output_norm_logs(state, full, n_prefix, 0, n_context, n_context, value_logs);
  }
  DenseCache own(one_layer_shape(state), 4096);
  const FrozenLayers no_window;
  const int64_t chunk = golden.json["chunk"];
  int64_t begin = 0;
  for (const auto& input : golden.json["inputs"]) {
    ReconstructionPass pass{
        .begin = begin, .end = std::min(n_context, begin + chunk), .input = input, .n_prompt = 0};
    const PassAttention over =
        pass_attention({state.hp.layers, full, no_window, n_prefix}, pass, attention, scores, kind,
                       value_logs.empty() ? nullptr : value_logs.data());
    CacheAttention seam(attention_setup(state), over.past, over.own_place, &over.sink);
    const AppendTarget target = {.global = {&own, 0}, .one_layer = true};
    seam.set_targets({&target, 1});
    runner.run({pass.input, n_prefix + n_context, {}}, seam, 0, {});
    begin = pass.end;
  }
  finish_scores(scores, kind);
  return scores;
}

void expect_close(const Scores& expected, const Scores& found) {
  ASSERT_EQ(expected.values.size(), found.values.size());
  double worst = 0;
  for (size_t pair = 0; pair < expected.values.size(); ++pair) {
    const double difference = std::abs(expected.values[pair] - found.values[pair]);
    worst = std::max(worst, difference / std::max(1e-6, std::abs(double{expected.values[pair]})));
  }
  std::printf("largest relative difference %.2g\n", worst);
  EXPECT_LE(worst, kMaxRelativeDifference);
}

void expect_same_choice(const Scores& expected, const Scores& found, double ratio) {
  const auto n_keep =
      static_cast<int64_t>(std::ceil(ratio * static_cast<double>(expected.pairs())));
  std::vector<float> sorted = expected.values;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double threshold = sorted[static_cast<size_t>(n_keep - 1)];
  const KeepSet a = select_pairs(expected, n_keep, Allocation::kGlobal);
  const KeepSet b = select_pairs(found, n_keep, Allocation::kGlobal);
  EXPECT_EQ(a.pairs_kept(), b.pairs_kept());
  for (size_t head = 0; head < a.rows.size(); ++head) {
    std::vector<uint32_t> only_one;
    std::set_symmetric_difference(a.rows[head].begin(), a.rows[head].end(), b.rows[head].begin(),
                                  b.rows[head].end(), std::back_inserter(only_one));
    for (const uint32_t row : only_one) {
      const double score = expected.values[head * static_cast<size_t>(expected.n_context) + row];
      EXPECT_NEAR(score, threshold, kNearThreshold) << "head " << head << " row " << row;
    }
  }
}

}  // namespace ctxzip::test
