#include "core/memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "ctxzip/error.h"

namespace ctxzip {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

TEST(Mapping, IsZeroFilledAndWritable) {
  const Mapping mapping(3 * kMiB + 1);
  EXPECT_EQ(mapping.size(), 3 * kMiB + 1);
  EXPECT_EQ(mapping.data()[3 * kMiB], std::byte{0});
  mapping.data()[3 * kMiB] = std::byte{1};
}

TEST(Mapping, EmptyHoldsNothing) {
  Mapping mapping(0);
  EXPECT_EQ(mapping.data(), nullptr);
  mapping.discard(0, 100);
  mapping.release();
}

TEST(Mapping, ReservesFarMoreThanMemory) {
  const Mapping mapping(size_t{1} << 40);
  mapping.data()[size_t{1} << 39] = std::byte{1};
}

TEST(Mapping, ImpossibleSizeIsAnError) {
  try {
    const Mapping mapping(size_t{1} << 62);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
  }
}

TEST(Mapping, MovesOwnership) {
  Mapping first(kMiB);
  std::byte* const data = first.data();
  Mapping second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(second.data(), data);
  Mapping third(kMiB);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(second.size(), 0u);
}

TEST(Mapping, ReleaseLowersResidentMemory) {
  Mapping mapping(64 * kMiB);
  std::memset(mapping.data(), 1, mapping.size());
  const int64_t before = resident_memory().anonymous_bytes;
  EXPECT_GE(before, static_cast<int64_t>(64 * kMiB));
  mapping.release();
  EXPECT_EQ(mapping.data(), nullptr);
  EXPECT_LE(resident_memory().anonymous_bytes, before - static_cast<int64_t>(60 * kMiB));
}

TEST(Mapping, DiscardTakesWholePagesInsideOnly) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Mapping mapping(4 * page);
  std::memset(mapping.data(), 1, mapping.size());
  mapping.discard(page - 1, 3 * page + 1);
  EXPECT_EQ(mapping.data()[page - 1], std::byte{1});
  EXPECT_EQ(mapping.data()[page], std::byte{0});
  EXPECT_EQ(mapping.data()[3 * page - 1], std::byte{0});
  EXPECT_EQ(mapping.data()[3 * page], std::byte{1});
  mapping.discard(10, 20);
  EXPECT_EQ(mapping.data()[10], std::byte{1});
}

TEST(ResidentMemory, ReadsTheKernelsCounters) {
  const ResidentMemory memory = resident_memory();
  EXPECT_GT(memory.anonymous_bytes, 0);
  EXPECT_GT(memory.file_bytes, 0);
  EXPECT_GE(memory.peak_bytes, memory.anonymous_bytes);
}

}  // namespace
}  // namespace ctxzip
