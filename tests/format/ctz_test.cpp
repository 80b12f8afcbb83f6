#include "format/ctz.h"

#include <ggml-cpp.h>
#include <gguf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>

#include "core/hash.h"
#include "ctxzip/error.h"
#include "format/ctz_layout.h"
#include "samples.h"

namespace ctxzip {
namespace {

namespace fs = std::filesystem;

class CtzFileTest : public testing::Test {
 protected:
  CtzFileTest() {
    std::string pattern = (fs::temp_directory_path() / "ctxzip_format_test_XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~CtzFileTest() override { fs::remove_all(directory_); }

  std::string write(const Sample& sample) const {
    const std::string path = directory_ / "sample.ctz";
    write_file_atomically(path,
                          [&](const WriteFn& sink) { write_ctz(sample.meta, sample.rows, sink); });
    return path;
  }

  fs::path directory_;
};

class CtzRoundTrip : public testing::TestWithParam<SampleOptions> {};

TEST_P(CtzRoundTrip, MemoryKeepsEverything) {
  const Sample sample = make_sample(GetParam());
  const std::vector<std::byte> bytes = to_bytes(sample);
  const CtzFile file = read_ctz(bytes);
  expect_same(sample, file);
  EXPECT_EQ(file.file_bytes, static_cast<int64_t>(bytes.size()));
  EXPECT_EQ(ctz_bytes(sample.meta, sample.rows), file.file_bytes);
}

TEST_P(CtzRoundTrip, WritingWhatWasReadGivesTheSameBytes) {
  const std::vector<std::byte> bytes = to_bytes(make_sample(GetParam()));
  const CtzFile file = read_ctz(bytes);
  EXPECT_EQ(to_bytes({file.meta, file.rows}), bytes);
  EXPECT_EQ(to_bytes(make_sample(GetParam())), bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CtzRoundTrip,
    testing::Values(
        SampleOptions{}, SampleOptions{.row_type = RowType::kF32},
        SampleOptions{.layers = "g", .n_kv_head = 1, .n_prefix = 0, .n_context = 1},
        SampleOptions{.layers = "g", .n_kv_head = 1, .n_context = 8, .ratio = 1},
        SampleOptions{.layers = "gg", .n_kv_head = 1, .n_prefix = 0, .n_context = 9},
        SampleOptions{.n_prefix = 0, .n_context = 64, .ratio = 0},
        SampleOptions{.head_dim = 256, .n_context = 65, .ratio = 0.9},
        SampleOptions{.layers = std::string(128, 'g'), .n_kv_head = 128, .n_context = 5},
        SampleOptions{.layers = "llgllg", .window = 8},
        SampleOptions{.row_type = RowType::kQ8, .n_context = 200},
        SampleOptions{.row_type = RowType::kQ4, .n_context = 200, .ratio = 1},
        SampleOptions{.row_type = RowType::kQ4, .n_prefix = 0, .n_context = 1},
        SampleOptions{.layers = "lg", .window = 9, .row_type = RowType::kQ4, .n_context = 70},
        SampleOptions{.layers = "gl", .window = 1, .n_context = 40},
        SampleOptions{.layers = "lg", .window = 500, .n_prefix = 0},
        SampleOptions{.layers = "rgrr", .state_size = 37},
        SampleOptions{.layers = "ggg", .value_dim = 6, .n_kv_head = 1, .head_dim = 16},
        SampleOptions{.layers = "rlgr",
                      .window = 5,
                      .value_dim = 8,
                      .state_size = 4,
                      .n_kv_head = 1,
                      .row_type = RowType::kF32,
                      .n_prefix = 0,
                      .ratio = 0.02}));

TEST_F(CtzFileTest, FileKeepsEverything) {
  const Sample sample = make_sample();
  const std::string path = write(sample);
  const CtzFile file = read_ctz(path);
  expect_same(sample, file);
  EXPECT_EQ(file.file_bytes, static_cast<int64_t>(fs::file_size(path)));
}

TEST_F(CtzFileTest, RowsOutliveTheFile) {
  const Sample sample = make_sample();
  CtzFile kept;
  {
    const CtzFile file = read_ctz(write(sample));
    kept = file;
  }
  fs::remove_all(directory_);
  expect_same(sample, kept);
}

TEST_F(CtzFileTest, MappedRowsAreAligned) {
  const CtzFile file = read_ctz(write(make_sample()));
  for (const std::byte* const rows : file.rows.global.k_layers) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(rows) % 32, 0u);
  }
}

TEST_F(CtzFileTest, ErrorsNameTheFile) {
  const std::string path = directory_ / "none.ctz";
  try {
    read_ctz(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kNotFound);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
  }
  write_file_atomically(path, [](const WriteFn&) {});
  try {
    read_ctz(path);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kCorruptFile);
    EXPECT_NE(std::string(error.what()).find(path), std::string::npos);
  }
}

TEST(Ctz, AbsentFieldsStayAbsent) {
  Sample sample = make_sample();
  sample.meta.delta_nll.reset();
  sample.meta.delta_nll_probe.reset();
  sample.meta.question_tokens.clear();
  sample.meta.turn_tokens.clear();
  sample.meta.next_turn_tokens.clear();
  sample.meta.templated = false;
  sample.meta.model_name.clear();
  expect_same(sample, read_ctz(to_bytes(sample)));
}

TEST(Ctz, ExtremeNumbersSurvive) {
  Sample sample = make_sample();
  sample.meta.seed = std::numeric_limits<uint64_t>::max();
  sample.meta.chunk_tokens = std::numeric_limits<int64_t>::max();
  sample.meta.delta_nll = -0.0;
  sample.meta.delta_nll_probe = std::numeric_limits<double>::denorm_min();
  const CtzFile file = read_ctz(to_bytes(sample));
  expect_same(sample, file);
  EXPECT_TRUE(std::signbit(file.meta.delta_nll.value()));
}

TEST(Ctz, NamesAreMadePlain) {
  Sample sample = make_sample();
  sample.meta.model_name = "evil\x1b[31m \xff" + std::string(300, 'x');
  const CtzFile file = read_ctz(to_bytes(sample));
  EXPECT_EQ(file.meta.model_name.substr(0, 12), "evil?[31m ?x");
  EXPECT_EQ(file.meta.model_name.size(), kMaxTextBytes);
}

TEST(Ctz, RefusesToWriteWhatItWouldNotRead) {
  Sample sample = make_sample();
  sample.meta.delta_nll = std::nan("");
  EXPECT_THROW(to_bytes(sample), Error);
  sample = make_sample();
  sample.meta.model.rope_scaling = "a\nb";
  EXPECT_THROW(to_bytes(sample), Error);
}

TEST(Ctz, EveryMetadataFieldChangesTheBytes) {
  const std::vector<std::byte> plain = to_bytes(make_sample());
  Sample sample = make_sample();
  sample.meta.seed += 1;
  EXPECT_NE(to_bytes(sample), plain);
  sample = make_sample();
  sample.meta.model.tokenizer_hash += 1;
  EXPECT_NE(to_bytes(sample), plain);
}

TEST(Ctz, GgmlReadsItsTable) {
  const Sample sample = make_sample();
  const std::vector<std::byte> bytes = to_bytes(sample);
  const gguf_context_ptr gguf(
      gguf_init_from_buffer(bytes.data(), bytes.size(), {.no_alloc = true, .ctx = nullptr}));
  ASSERT_NE(gguf, nullptr);
  EXPECT_STREQ(gguf_get_val_str(gguf.get(), gguf_find_key(gguf.get(), kKeyArchitecture)), "ctxzip");
  EXPECT_EQ(gguf_get_alignment(gguf.get()), 32u);
  ASSERT_EQ(gguf_get_n_tensors(gguf.get()), 7);
  EXPECT_STREQ(gguf_get_tensor_name(gguf.get(), 0), "kept");
  EXPECT_STREQ(gguf_get_tensor_name(gguf.get(), 6), "v.2");
  const int64_t last_key = gguf_get_n_kv(gguf.get()) - 1;
  EXPECT_STREQ(gguf_get_key(gguf.get(), last_key), kKeyMetadataChecksum);
  // ggml finds the rows where the reader does.
  const CtzFile file = read_ctz(bytes);
  const size_t at = gguf_get_data_offset(gguf.get()) + gguf_get_tensor_offset(gguf.get(), 5);
  EXPECT_EQ(
      gguf_get_tensor_size(gguf.get(), 5),
      static_cast<size_t>(file.rows.global.layer_rows(2)) * file.rows.global.shape.row_size());
  EXPECT_TRUE(std::equal(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + 16),
                         file.rows.global.k_layers[2]));
}

// SmolLM2-135M; docs/format.md states the figures that this prints.
TEST(CtzSize, OverheadIsBelowTwoPercent) {
  for (const int64_t n_context : {1000, 4000}) {
    for (const double ratio : {0.3, 0.1}) {
      Sample sample = make_sample({.layers = std::string(30, 'g'),
                                   .n_kv_head = 3,
                                   .head_dim = 64,
                                   .n_prefix = 20,
                                   .n_context = n_context,
                                   .ratio = ratio});
      const int64_t n_bytes = ctz_bytes(sample.meta, sample.rows);
      const int64_t overhead = n_bytes - sample.rows.kv_bytes();
      const double share = static_cast<double>(overhead) / static_cast<double>(n_bytes);
      std::printf("%d tokens at %.0f%%: %ld bytes, %ld of them overhead, %.2f%%\n",
                  static_cast<int>(n_context), 100 * ratio, static_cast<long>(n_bytes),
                  static_cast<long>(overhead), 100 * share);
      EXPECT_LT(share, 0.02);
    }
  }
}

TEST(CtzSize, FollowsTheKeptPairs) {
  const auto size_at = [](double ratio) {
    const Sample sample = make_sample({.head_dim = 64, .n_context = 2000, .ratio = ratio});
    return static_cast<double>(ctz_bytes(sample.meta, sample.rows));
  };
  EXPECT_NEAR(size_at(0.2) / size_at(1), 0.2, 0.05);
}

}  // namespace
}  // namespace ctxzip
