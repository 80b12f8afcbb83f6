// A decode step allocates nothing, whatever it finds.
#include <atomic>
#include <cstdlib>
#include <new>

#include "recall/thread_team.h"
#include "recall_fixture.h"

namespace {

std::atomic<int64_t> allocations = 0;

void* counted(std::size_t size) {
  ++allocations;
  void* const memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace ctxzip::testing {
namespace {

class DecodeAllocationTest : public RecallTest {};

TEST_F(DecodeAllocationTest, NothingIsAllocatedInAStep) {
  const std::vector<uint16_t> rows = make_rows(3000);
  for (const int variant : {0, 1, 2, 3}) {
    SCOPED_TRACE(variant);
    RecallOptions options;
    options.block_rows = 256;
    options.sound = variant == 1;
    options.top_per_head = variant == 2 ? 4 : 0;
    options.max_fetched = variant == 3 ? 1 : 4096;
    RecallCache cache(tuned_mla_kernels(), kTinyShape, RowType::kF16, 4096, options);
    cache.append(rows.data(), 3000);
    cache.maintain();
    DecodeStep step(cache);
    ThreadTeam team(2);
    std::vector<float> out(static_cast<size_t>(kTinyShape.n_head * kTinyShape.latent));
    for (int at = 0; at < 12; ++at) {
      const std::vector<float> q = seeking_queries(rows, 2816);
      const int64_t before = allocations;
      team.attend(step, q.data(), out.data());
      cache.append(rows.data(), 1);
      EXPECT_EQ(allocations - before, 0);
    }
    EXPECT_GT(step.totals().fired_rows, 0);
    EXPECT_EQ(step.totals().overflowed > 0, variant == 3);
  }
}

}  // namespace
}  // namespace ctxzip::testing
