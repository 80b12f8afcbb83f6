// Archived rows in a file instead of in memory.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "core/memory.h"
#include "ctxzip/error.h"
#include "recall_cache_fixture.h"

namespace ctxzip::testing {
namespace {

using RecallArchiveTest = RecallCacheTest;

TEST_F(RecallArchiveTest, ArchiveInAFileChangesNoBit) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("recall-test-" + std::to_string(getpid())))
          .string();
  RecallOptions on_disk = tiny_options();
  on_disk.archive_path = path;
  const auto file = make_cache(on_disk);
  EXPECT_FALSE(std::filesystem::exists(path)) << "nothing is left behind";
  const auto memory = make_cache(tiny_options());
  const std::vector<uint16_t> rows = make_rows(3000);
  DecodeStep file_step(*file);
  DecodeStep memory_step(*memory);
  for (int64_t row = 0; row < 3000; row += 300) {
    for (RecallCache* cache : {file.get(), memory.get()}) {
      cache->append(rows.data() + row * 80, 300);
      cache->maintain();
    }
    const std::vector<float> q = seeking_queries(rows, row + 300);
    ASSERT_EQ(attend(file_step, *file, q), attend(memory_step, *memory, q));
    ASSERT_EQ(file_step.counts().fetched_rows, memory_step.counts().fetched_rows);
  }
  on_disk.archive_path = "/nowhere/at/all";
  EXPECT_THROW(make_cache(on_disk), Error);
}

// More rows fire than may be fetched: the step reads the whole file, and says so.
TEST_F(RecallArchiveTest, AnOverflowReadsTheWholeFile) {
  RecallOptions options = tiny_options();
  options.max_fetched = 1;
  options.archive_path = (std::filesystem::temp_directory_path() /
                          ("recall-overflow-test-" + std::to_string(getpid())))
                             .string();
  const int64_t n = 2900;
  const std::vector<uint16_t> rows = make_rows(n);
  const auto file = make_cache(options);
  file->append(rows.data(), n);
  file->maintain();
  options.archive_path.clear();
  const auto memory = make_cache(options);
  memory->append(rows.data(), n);
  memory->maintain();
  std::vector<int64_t> every(static_cast<size_t>(n));
  std::iota(every.begin(), every.end(), int64_t{0});
  DecodeStep step(*file);
  DecodeStep dense(*memory);
  dense.set_dense(true);
  const int64_t n_kept = std::ssize(file->kept());
  constexpr int64_t kRowBytes = 160;
  constexpr int64_t kEntryBytes = 2 * (16 + 8) + 4;
  for (int at = 0; at < 10; ++at) {
    const std::vector<float> q = seeking_queries(rows, file->n_closed());
    const std::vector<float> out = attend(step, *file, q);
    EXPECT_EQ(out, attend(dense, *memory, q));
    expect_near(out, exact(kTinyShape, q, rows, every), 1e-5);
    const StepCounts& counts = step.counts();
    EXPECT_TRUE(counts.overflowed);
    EXPECT_GT(counts.fired_rows, options.max_fetched);
    EXPECT_EQ(counts.fetched_rows, 0);
    EXPECT_EQ(counts.near_rows, n);
    EXPECT_EQ(counts.scanned_entries, file->n_closed());
    // All rows, the kept ones twice (before the overflow was known), and the index.
    EXPECT_EQ(counts.bytes_read, (n + n_kept) * kRowBytes + file->n_closed() * kEntryBytes);
    EXPECT_EQ(dense.counts().bytes_read, n * kRowBytes);
  }
  EXPECT_EQ(step.totals().overflowed, 10);
  EXPECT_EQ(step.totals().bytes_read, 10 * step.counts().bytes_read);
}

// Another session may be creating its archive under the same name, or a file may have it.
TEST_F(RecallArchiveTest, ATakenNameIsLeftAlone) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("recall-taken-" + std::to_string(getpid()));
  std::ofstream(path) << "mine";
  RecallOptions on_disk = tiny_options();
  on_disk.archive_path = path.string();
  const auto cache = make_cache(on_disk);
  cache->append(make_rows(600).data(), 600);
  std::string content;
  std::ifstream(path) >> content;
  EXPECT_EQ(content, "mine");
  std::filesystem::remove(path);
}

// With the archive in a file only kept rows, index and tail occupy memory.
TEST_F(RecallArchiveTest, ArchiveInAFileLeavesMemory) {
  const MlaShape shape = {.latent = 512, .branch = 64, .n_head = 8, .scale = 0.07f};
  const int64_t n = 32768;
  RecallOptions options;
  options.archive_path =
      (std::filesystem::temp_directory_path() / ("recall-memory-test-" + std::to_string(getpid())))
          .string();
  options.block_rows = 1024;
  const std::vector<uint16_t> rows = make_rows(1024, shape);
  const ResidentMemory before = resident_memory();
  RecallCache cache(tuned_mla_kernels(), shape, RowType::kF16, n, options);
  for (int64_t row = 0; row < n; row += 1024) {
    cache.append(rows.data(), 1024);
    cache.maintain();
  }
  ASSERT_EQ(cache.n_closed(), n);
  const ResidentMemory after = resident_memory();
  const int64_t rows_bytes = n * 1152;
  const int64_t used =
      after.anonymous_bytes - before.anonymous_bytes + after.file_bytes - before.file_bytes;
  // kept 1/32, index 260 of 1152 bytes, two blocks of tail; the rest is the calibration's and the
  // allocator's.
  EXPECT_LT(used, rows_bytes * 30 / 100 + (6 << 20));
}

}  // namespace
}  // namespace ctxzip::testing
