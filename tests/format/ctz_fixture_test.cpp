// Files of every format version that every later ctxzip must read. Never rewrite one; a new version
// of the format gets a new file beside them.
#include <gtest/gtest.h>

#include "core/hash.h"
#include "samples.h"

namespace ctxzip {
namespace {

std::string fixture_path(uint32_t version) {
  return std::string(CTXZIP_TEST_DATA) + "/v" + std::to_string(version) + ".ctz";
}

Sample fixture_sample() {
  Sample sample = make_sample({.layers = "lg",
                               .window = 6,
                               .n_kv_head = 2,
                               .head_dim = 8,
                               .n_prefix = 2,
                               .n_context = 11,
                               .ratio = 0.4,
                               .seed = 2025});
  sample.meta.model_name = "fixture";
  return sample;
}

TEST(CtzFixture, Version1StillLoads) {
  const CtzFile file = read_ctz(fixture_path(1));
  EXPECT_EQ(file.file_bytes, 2592);
  EXPECT_EQ(file.version, 1u);
  EXPECT_EQ(file.meta.model_name, "fixture");
  EXPECT_EQ(file.meta.model.layers, "gg");
  EXPECT_EQ(file.rows.layers, LayerMap::all_global(2));
  EXPECT_EQ(file.rows.local.kv_bytes(), 0);
  EXPECT_EQ(file.meta.model.architecture, "llama");
  EXPECT_EQ(file.meta.method, "kvzip");
  EXPECT_EQ(file.meta.delta_nll, -0.004);
  EXPECT_EQ(file.meta.delta_nll_probe, 0.0125);
  EXPECT_EQ(file.meta.prefix_tokens, (std::vector<int32_t>{246, 14}));
  EXPECT_EQ(file.meta.context_tokens,
            (std::vector<int32_t>{34, 566, 732, 760, 675, 707, 956, 664, 278, 928, 261}));
  EXPECT_EQ(file.rows.global.shape, (KvShape{.n_layer = 2, .n_kv_head = 2, .head_dim = 8}));
  EXPECT_EQ(file.rows.global.n_prefix, 2);
  EXPECT_EQ(file.rows.global.kept.rows,
            (std::vector<std::vector<uint32_t>>{{}, {0, 1, 5, 6, 8, 10}, {0, 2, 3, 9}, {0, 3, 8}}));
  const auto hash_of = [&](const std::byte* rows, int64_t layer) {
    const auto n =
        static_cast<size_t>(file.rows.global.layer_rows(layer)) * file.rows.global.shape.row_size();
    return to_hex(hash64({rows, n}));
  };
  EXPECT_EQ(hash_of(file.rows.global.k_layers[0], 0), "5be64183b4f1a186");
  EXPECT_EQ(hash_of(file.rows.global.v_layers[1], 1), "7269d904478cc62c");
}

TEST(CtzFixture, Version2StillLoads) { expect_same(fixture_sample(), read_ctz(fixture_path(2))); }

// With recurrent layers and values in keys, which came with version 3.
Sample hybrid_sample() {
  Sample sample = make_sample({.layers = "rgl",
                               .window = 6,
                               .value_dim = 8,
                               .state_size = 10,
                               .n_kv_head = 1,
                               .head_dim = 16,
                               .n_prefix = 2,
                               .n_context = 11,
                               .ratio = 1,
                               .seed = 2026});
  sample.meta.model_name = "hybrid fixture";
  return sample;
}

TEST(CtzFixture, Version3StillLoads) { expect_same(hybrid_sample(), read_ctz(fixture_path(3))); }

// Under VestigeKV, which came with version 4.
Sample recall_sample() {
  Sample sample = make_sample({.layers = "rgrg",
                               .value_dim = 16,
                               .state_size = 10,
                               .n_kv_head = 1,
                               .head_dim = 24,
                               .n_prefix = 2,
                               .n_context = 31,
                               .ratio = 1,
                               .n_closed = 21,
                               .n_observed = 3,
                               .seed = 2027});
  sample.meta.model_name = "recall fixture";
  sample.meta.method = "vestige";
  return sample;
}

TEST(CtzFixture, Version4StillLoads) { expect_same(recall_sample(), read_ctz(fixture_path(4))); }

TEST(CtzFixture, TheWriterStillMakesTheSameBytes) {
  for (const auto& [version, sample] :
       {std::pair(kVersionWithoutRecall, hybrid_sample()), {kCtzVersion, recall_sample()}}) {
    const MappedFile file(fixture_path(version));
    const std::vector<std::byte> bytes = to_bytes(sample);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), file.bytes().begin(), file.bytes().end()));
  }
}

// How the fixture was made: format_test --gtest_also_run_disabled_tests
// --gtest_filter=CtzFixture.DISABLED_Make
TEST(CtzFixture, DISABLED_Make) {
  const Sample sample = recall_sample();
  write_file_atomically(fixture_path(kCtzVersion),
                        [&](const WriteFn& sink) { write_ctz(sample.meta, sample.rows, sink); });
}

}  // namespace
}  // namespace ctxzip
