// Damage at every place: truncation, flipped bits, and what reading allocates.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "allocation_counter.h"
#include "ctxzip/error.h"
#include "format/gguf_reader.h"
#include "reseal.h"
#include "samples.h"

namespace ctxzip {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// Whether reading throws an Error; any other exception escapes and fails the test.
bool is_refused(const std::vector<std::byte>& bytes) {
  std::vector<std::byte> copy = bytes;
  const size_t before = allocated_bytes();
  bool refused = false;
  try {
    read_ctz(std::move(copy));
  } catch (const Error& error) {
    refused = true;
    EXPECT_TRUE(error.kind() == ErrorKind::kCorruptFile || error.kind() == ErrorKind::kUnsupported);
  }
  EXPECT_LE(allocated_bytes() - before, bytes.size() + kMiB);
  return refused;
}

TEST(CtzCorruption, TruncationAnywhere) {
  const std::vector<std::byte> bytes = to_bytes(make_sample());
  for (size_t n = 0; n < bytes.size(); ++n) {
    ASSERT_TRUE(is_refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)})) << n;
  }
}

// Under VestigeKV: more keys and tensors.
std::vector<std::byte> recall_bytes() {
  return to_bytes(make_sample({.layers = "rg",
                               .value_dim = 16,
                               .state_size = 4,
                               .n_kv_head = 1,
                               .head_dim = 24,
                               .n_context = 30,
                               .ratio = 1,
                               .n_closed = 21,
                               .n_observed = 2}));
}

TEST(CtzCorruption, TruncationAnywhereUnderVestigeKv) {
  const std::vector<std::byte> bytes = recall_bytes();
  for (size_t n = 0; n < bytes.size(); n += 7) {
    ASSERT_TRUE(is_refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)})) << n;
  }
}

TEST(CtzCorruption, TruncationAtTheEndOfEveryTensorOfALargerFile) {
  const std::vector<std::byte> bytes = to_bytes(make_sample({.head_dim = 64, .n_context = 500}));
  const GgufContents gguf = parse_gguf(bytes, "sample");
  for (const GgufTensor& tensor : gguf.tensors) {
    const size_t start = gguf.data_offset + tensor.offset;
    for (const size_t n : {start - 1, start, start + 1}) {
      EXPECT_TRUE(is_refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n)})) << n;
    }
  }
}

TEST(CtzCorruption, EverySingleBit) {
  std::vector<std::byte> bytes = to_bytes(make_sample());
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[at] ^= std::byte{1} << bit;
      ASSERT_TRUE(is_refused(bytes)) << "byte " << at << " bit " << bit;
      bytes[at] ^= std::byte{1} << bit;
    }
  }
  EXPECT_FALSE(is_refused(bytes));
}

TEST(CtzCorruption, TenThousandRandomBytes) {
  constexpr uint32_t kSeed = 20250101;
  const Sample sample = make_sample({.head_dim = 64, .n_context = 100});
  const std::vector<std::byte> original = to_bytes(sample);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 10'000; ++round) {
    std::vector<std::byte> bytes = original;
    for (uint32_t n = 0; n < 1 + round % 4u; ++n) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random() % 256);
    }
    ASSERT_EQ(is_refused(bytes), bytes != original) << "seed " << kSeed << " round " << round;
  }
}

// With checksums made right, damage may give another valid file, but nothing worse.
void damage_behind_right_checksums(const std::vector<std::byte>& original) {
  constexpr uint32_t kSeed = 7;
  const size_t n_metadata = parse_gguf(original, "sample").data_offset;
  std::mt19937 random(kSeed);
  int n_read = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> bytes = original;
    for (uint32_t n = 0; n < 1 + round % 3u; ++n) {
      bytes[random() % (n_metadata + 64)] = static_cast<std::byte>(random() % 256);
    }
    reseal(bytes);
    n_read += is_refused(bytes) ? 0 : 1;
  }
  EXPECT_GT(n_read, 0);
}

TEST(CtzCorruption, DamagedMetadataBehindRightChecksums) {
  damage_behind_right_checksums(to_bytes(make_sample()));
}

TEST(CtzCorruption, DamageUnderVestigeKvBehindRightChecksums) {
  damage_behind_right_checksums(recall_bytes());
}

TEST(CtzCorruption, ReadingTheLargestTableAllocatesLittle) {
  EXPECT_FALSE(is_refused(to_bytes(make_sample({.layers = std::string(255, 'g'),
                                                .n_kv_head = 64,
                                                .head_dim = 1,
                                                .n_prefix = 1,
                                                .n_context = 9}))));
}

TEST(CtzCorruption, MappingAFileAllocatesFarLessThanItsRows) {
  const std::string path = testing::TempDir() + "ctxzip_allocation_test.ctz";
  const Sample sample =
      make_sample({.layers = "gggggggg", .head_dim = 128, .n_context = 2000, .ratio = 0.5});
  write_file_atomically(path,
                        [&](const WriteFn& sink) { write_ctz(sample.meta, sample.rows, sink); });
  const size_t before = allocated_bytes();
  const CtzFile file = read_ctz(path);
  EXPECT_LE(allocated_bytes() - before, kMiB / 8);
  EXPECT_GE(file.file_bytes, int64_t{7} << 20);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace ctxzip
