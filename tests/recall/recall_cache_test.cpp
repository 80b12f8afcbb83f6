// What a cache keeps, and what a step attends to.
#include "recall/recall_cache.h"

#include <numeric>

#include "ctxzip/error.h"
#include "recall/partition.h"
#include "recall/thread_team.h"
#include "recall_cache_fixture.h"

namespace ctxzip::testing {
namespace {

constexpr double kTolerance = 1e-5;

// Closing and rebalancing 50 times equals one selection from scratch, and every row is where it
// was.
TEST_F(RecallCacheTest, PartitionAfterFiftyClosesIsExact) {
  const RecallOptions options = tiny_options();
  const auto cache = make_cache(options);
  const int64_t n = 50 * 256 + 77;
  const std::vector<uint16_t> rows = make_rows(n);
  const int64_t dim = kTinyShape.row_dim();
  for (int64_t row = 0; row < n; row += 100) {
    cache->append(rows.data() + row * dim, std::min<int64_t>(100, n - row));
    cache->maintain();
  }
  ASSERT_EQ(cache->n_closed(), 50 * 256);
  ASSERT_EQ(cache->n_tail(), 77);

  std::vector<float> sigma;
  for (int64_t block = 0; block < 50; ++block) {
    std::vector<float> branch;
    for (int64_t row = block * 256; row < (block + 1) * 256; ++row) {
      for (int64_t at = kTinyShape.latent; at < dim; ++at) {
        branch.push_back(half_to_float(rows[static_cast<size_t>(row * dim + at)]));
      }
    }
    std::vector<float> out(256);
    LowPass(256, 1).sigma(branch, kTinyShape.branch, out);
    sigma.insert(sigma.end(), out.begin(), out.end());
  }
  std::vector<uint32_t> ranked(sigma.size() - 4);
  std::iota(ranked.begin(), ranked.end(), 4u);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](uint32_t a, uint32_t b) { return sigma[a] > sigma[b]; });
  std::vector<uint32_t> want = {0, 1, 2, 3};
  want.insert(want.end(), ranked.begin(), ranked.begin() + 800);
  std::sort(want.begin(), want.end());
  EXPECT_EQ(std::vector<uint32_t>(cache->kept().begin(), cache->kept().end()), want);

  const auto bytes = static_cast<size_t>(dim) * 2;
  EXPECT_EQ(std::memcmp(cache->closed_rows().data, rows.data(), 50 * 256 * bytes), 0);
  EXPECT_EQ(std::memcmp(cache->tail_rows().data, rows.data() + 50 * 256 * dim, 77 * bytes), 0);
  for (size_t at = 0; at < want.size(); ++at) {
    const auto* kept = static_cast<const uint16_t*>(cache->kept_rows().data);
    ASSERT_EQ(
        std::memcmp(kept + at * static_cast<size_t>(dim), rows.data() + want[at] * dim, bytes), 0);
  }
}

TEST_F(RecallCacheTest, CloseNowAndTheEffectiveRatio) {
  RecallOptions options = tiny_options();
  options.block_rows = 4096;
  const auto cache = make_cache(options);
  const std::vector<uint16_t> rows = make_rows(8100);
  cache->append(rows.data(), 63);
  EXPECT_FALSE(cache->close_now());
  cache->append(rows.data(), 1);
  EXPECT_TRUE(cache->close_now());
  EXPECT_EQ(cache->n_closed(), 64);
  EXPECT_EQ(cache->n_tail(), 0);

  options.keep_ratio = 1.0 / 32;
  const auto long_tail = make_cache(options);
  long_tail->append(rows.data(), 8100);
  long_tail->maintain();
  EXPECT_EQ(long_tail->n_tail(), 4004);
  EXPECT_NEAR(long_tail->effective_ratio(), 1.96, 0.01);
  EXPECT_TRUE(long_tail->close_now());
  EXPECT_NEAR(long_tail->effective_ratio(), 31.5, 0.2);
}

TEST_F(RecallCacheTest, PrefixFormRanksAllClosedRowsTogether) {
  RecallOptions options = tiny_options();
  options.window = WindowForm::kPrefix;
  options.n_recent = 10;
  const auto cache = make_cache(options);
  const std::vector<uint16_t> rows = make_rows(1024);
  cache->append(rows.data(), 1024);
  cache->maintain();
  std::vector<float> branch;
  for (int64_t row = 0; row < 1024; ++row) {
    for (int64_t at = 64; at < 80; ++at) {
      branch.push_back(half_to_float(rows[static_cast<size_t>(row * 80 + at)]));
    }
  }
  std::vector<float> sigma(1024);
  prefix_sigma(branch, 16, 4, sigma);
  EXPECT_EQ(std::vector<uint32_t>(cache->kept().begin(), cache->kept().end()),
            select_rows(sigma, {1.0 / 16, 4, 10}));
}

// Keeping everything is plain attention, bit for bit where the blocks agree.
TEST_F(RecallCacheTest, KeepingAllEqualsPlainAttention) {
  RecallOptions all = tiny_options();
  all.keep_ratio = 1;
  all.recall = false;
  RecallOptions plain = tiny_options();
  plain.block_rows = 8192;
  const std::vector<uint16_t> rows = make_rows(5000);
  const std::vector<float> q = make_queries();
  for (const int64_t n : {1, 255, 256, 257, 1024, 5000}) {
    SCOPED_TRACE(n);
    const auto kept = make_cache(all);
    const auto dense = make_cache(plain);
    kept->append(rows.data(), n);
    kept->maintain();
    dense->append(rows.data(), n);
    EXPECT_EQ(attend(*kept, q), attend(*dense, q));
    std::vector<int64_t> every(static_cast<size_t>(n));
    std::iota(every.begin(), every.end(), int64_t{0});
    expect_near(attend(*dense, q), exact(kTinyShape, q, rows, every), kTolerance);
  }
  const auto other_blocks = make_cache(all);
  other_blocks->append(rows.data(), 100);
  other_blocks->close_now();
  other_blocks->append(rows.data() + 100 * 80, 900);
  const auto dense = make_cache(plain);
  dense->append(rows.data(), 1000);
  expect_near(attend(*other_blocks, q), attend(*dense, q), kTolerance);
}

// Lemma 1: without positions the output is a function of the multiset of rows.
TEST_F(RecallCacheTest, OrderOfRowsDoesNotMatter) {
  RecallOptions options = tiny_options();
  options.block_rows = 4096;
  const int64_t n = 1500;
  std::vector<uint16_t> rows = make_rows(n);
  const std::vector<float> q = make_queries();
  const auto cache = make_cache(options);
  cache->append(rows.data(), n);
  const std::vector<float> want = attend(*cache, q);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  for (int permutation = 0; permutation < 5; ++permutation) {
    std::shuffle(order.begin(), order.end(), random_);
    const auto permuted = make_cache(options);
    for (const int64_t row : order) permuted->append(rows.data() + row * 80, 1);
    expect_near(attend(*permuted, q), want, kTolerance);
  }
}

TEST_F(RecallCacheTest, FetchedRowsJoinTheSameSoftmax) {
  const std::vector<uint16_t> rows = make_rows(2100);
  const auto cache = make_cache(tiny_options());
  cache->append(rows.data(), 2100);
  cache->maintain();
  DecodeStep step(*cache);
  int64_t n_fetched = 0;
  for (int at = 0; at < 20; ++at) {
    const std::vector<float> q = seeking_queries(rows, 2048);
    const std::vector<float> out = attend(step, *cache, q);
    std::vector<int64_t> attended = near_rows(*cache);
    attended.insert(attended.end(), step.fetched().begin(), step.fetched().end());
    EXPECT_TRUE(std::is_sorted(step.fetched().begin(), step.fetched().end()));
    expect_near(out, exact(kTinyShape, q, rows, attended), kTolerance);
    n_fetched += step.counts().fetched_rows;
    EXPECT_EQ(step.counts().bytes_read,
              (step.counts().near_rows + step.counts().fetched_rows) * 160 +
                  step.counts().scanned_entries * (2 * (16 + 8) + 4));
  }
  EXPECT_GT(n_fetched, 0);
  EXPECT_EQ(step.totals().steps, 20);
  EXPECT_EQ(step.totals().fetched_rows, n_fetched);
}

TEST_F(RecallCacheTest, SoundModeMissesNoWinner) {
  RecallOptions options = tiny_options();
  options.sound = true;
  options.keep_ratio = 1.0 / 64;
  for (const float noise : {0.1f, 1.0f}) {
    const std::vector<uint16_t> rows = make_rows(1100);
    const auto cache = make_cache(options);
    cache->append(rows.data(), 1100);
    cache->maintain();
    DecodeStep step(*cache);
    size_t n_winners = 0;
    for (int at = 0; at < 50; ++at) {
      const std::vector<float> q = seeking_queries(rows, 1024, kTinyShape, noise);
      attend(step, *cache, q);
      const std::vector<uint32_t> all = winners(*cache, q, rows);
      n_winners += all.size();
      EXPECT_TRUE(
          std::includes(step.fetched().begin(), step.fetched().end(), all.begin(), all.end()));
    }
    EXPECT_GT(n_winners, 50u);
  }
}

// Lemma 3: the limit on what was left out holds, and says something when little was.
TEST_F(RecallCacheTest, ExcludedMassStaysBelowItsLimit) {
  const std::vector<uint16_t> rows = make_rows(1100);
  RecallOptions options = tiny_options();
  options.sketch_rank = 56;
  const auto cache = make_cache(options);
  cache->append(rows.data(), 1100);
  cache->maintain();
  DecodeStep step(*cache);
  double smallest = 1;
  for (int at = 0; at < 10; ++at) {
    const std::vector<float> q = seeking_queries(rows, 1024);
    attend(step, *cache, q);
    std::vector<int64_t> attended = near_rows(*cache);
    attended.insert(attended.end(), step.fetched().begin(), step.fetched().end());
    std::vector<bool> is_attended(1100);
    for (const int64_t row : attended) is_attended[static_cast<size_t>(row)] = true;
    const std::vector<double> limits = step.excluded_mass_limits();
    for (int64_t head = 0; head < kTinyShape.n_head; ++head) {
      double in = 0;
      double left_out = 0;
      for (int64_t row = 0; row < 1100; ++row) {
        const double mass = std::exp(score(kTinyShape, q, head, rows.data() + row * 80));
        (is_attended[static_cast<size_t>(row)] ? in : left_out) += mass;
      }
      EXPECT_LE(left_out / (in + left_out), limits[static_cast<size_t>(head)]);
      smallest = std::min(smallest, limits[static_cast<size_t>(head)]);
    }
  }
  EXPECT_LT(smallest, 0.9);
}

TEST_F(RecallCacheTest, EachHeadFetchesAtMostItsBest) {
  RecallOptions options = tiny_options();
  options.top_per_head = 2;
  const std::vector<uint16_t> rows = make_rows(1024);
  const auto capped = make_cache(options);
  const auto all = make_cache(tiny_options());
  capped->append(rows.data(), 1024);
  capped->maintain();
  all->append(rows.data(), 1024);
  all->maintain();
  DecodeStep step(*capped);
  DecodeStep every(*all);
  bool reduced = false;
  for (int at = 0; at < 20; ++at) {
    const std::vector<float> q = seeking_queries(rows, 1024);
    attend(step, *capped, q);
    attend(every, *all, q);
    EXPECT_LE(step.counts().fetched_rows, 2 * kTinyShape.n_head);
    EXPECT_EQ(step.counts().fired_rows, every.counts().fired_rows);
    EXPECT_TRUE(std::includes(every.fetched().begin(), every.fetched().end(),
                              step.fetched().begin(), step.fetched().end()));
    reduced = reduced || step.counts().fetched_rows < every.counts().fetched_rows;
  }
  EXPECT_TRUE(reduced);
}

TEST_F(RecallCacheTest, OverflowAndShortContextsAttendToEverything) {
  const std::vector<uint16_t> rows = make_rows(2100);
  RecallOptions small = tiny_options();
  small.max_fetched = 1;
  RecallOptions fallback = tiny_options();
  fallback.dense_below = 3000;
  std::vector<int64_t> every(2100);
  std::iota(every.begin(), every.end(), int64_t{0});
  const std::vector<float> q = seeking_queries(rows, 2048);
  for (const RecallOptions& options : {small, fallback}) {
    const auto cache = make_cache(options);
    cache->append(rows.data(), 2100);
    cache->maintain();
    DecodeStep step(*cache);
    expect_near(attend(step, *cache, q), exact(kTinyShape, q, rows, every), kTolerance);
    EXPECT_EQ(step.counts().near_rows, 2100);
    EXPECT_EQ(step.counts().overflowed, options.max_fetched == 1);
    EXPECT_EQ(step.totals().overflowed, options.max_fetched == 1 ? 1 : 0);
    EXPECT_EQ(step.counts().dense, options.dense_below == 3000);
  }
}

TEST_F(RecallCacheTest, RecallGoesOffAndOnAgain) {
  const std::vector<uint16_t> rows = make_rows(1100);
  const auto cache = make_cache(tiny_options());
  cache->append(rows.data(), 1100);
  cache->maintain();
  const std::vector<float> q = seeking_queries(rows, 1024);
  const std::vector<float> with = attend(*cache, q);
  cache->set_recall(false);
  const std::vector<float> without = attend(*cache, q);
  expect_near(without, exact(kTinyShape, q, rows, near_rows(*cache)), kTolerance);
  EXPECT_NE(with, without);
  cache->set_recall(true);
  EXPECT_EQ(attend(*cache, q), with);
}

TEST_F(RecallCacheTest, TailsAroundABlock) {
  const std::vector<uint16_t> rows = make_rows(600);
  const std::vector<float> q = make_queries();
  for (const int64_t n : {255, 256, 257, 511, 512, 513}) {
    SCOPED_TRACE(n);
    RecallOptions options = tiny_options();
    options.sound = true;
    const auto cache = make_cache(options);
    cache->append(rows.data(), n);
    const std::vector<float> before = attend(*cache, q);
    cache->maintain();
    EXPECT_EQ(cache->n_closed(), n / 256 * 256);
    EXPECT_EQ(cache->n_tail(), n % 256);
    DecodeStep step(*cache);
    std::vector<float> out = attend(step, *cache, q);
    std::vector<int64_t> attended = near_rows(*cache);
    attended.insert(attended.end(), step.fetched().begin(), step.fetched().end());
    expect_near(out, exact(kTinyShape, q, rows, attended), kTolerance);
  }
}

TEST_F(RecallCacheTest, EmptyAndOneRowArchives) {
  const std::vector<float> q = make_queries();
  const auto empty = make_cache(tiny_options());
  for (const float value : attend(*empty, q)) EXPECT_EQ(value, 0);

  const std::vector<uint16_t> rows = make_rows(256);
  RecallOptions options = tiny_options();
  options.keep_ratio = 251.0 / 256;  // and four sinks
  const auto one = make_cache(options);
  one->append(rows.data(), 256);
  one->maintain();
  ASSERT_EQ(one->n_archived(), 1);
  DecodeStep step(*one);
  bool fetched = false;
  for (int at = 0; at < 100; ++at) {
    const std::vector<float> seeking = seeking_queries(rows, 256);
    const std::vector<float> out = attend(step, *one, seeking);
    std::vector<int64_t> attended = near_rows(*one);
    attended.insert(attended.end(), step.fetched().begin(), step.fetched().end());
    expect_near(out, exact(kTinyShape, seeking, rows, attended), kTolerance);
    fetched = fetched || step.counts().fetched_rows == 1;
  }
  EXPECT_TRUE(fetched);
  EXPECT_THROW(one->append(rows.data(), 1 << 20), Error);
}

// A slot that another sequence filled, even with NaN, behaves as a new one.
TEST_F(RecallCacheTest, ReusedSlotsRememberNothing) {
  const std::vector<uint16_t> rows = make_rows(1100);
  const std::vector<uint16_t> poison(16384 * 80, uint16_t{0x7e00});
  const std::vector<uint16_t> others = make_rows(3000);
  const auto fresh = make_cache(tiny_options());
  const auto reused = make_cache(tiny_options());
  DecodeStep reused_step(*reused);
  DecodeStep fresh_step(*fresh);
  reused->append(poison.data(), 16384);
  reused->maintain();
  attend(reused_step, *reused, make_queries());
  reused->clear();
  reused->append(others.data(), 3000);
  for (int at = 0; at < 12; ++at) {
    attend(reused_step, *reused, seeking_queries(others, 2816));
    while (reused->maintain()) continue;
  }
  reused->clear();
  for (RecallCache* cache : {fresh.get(), reused.get()}) {
    cache->append(rows.data(), 1100);
    cache->maintain();
  }
  for (int at = 0; at < 12; ++at) {
    const std::vector<float> q = seeking_queries(rows, 1024);
    ASSERT_EQ(attend(reused_step, *reused, q), attend(fresh_step, *fresh, q));
    while (fresh->maintain()) continue;
    while (reused->maintain()) continue;
  }
  EXPECT_EQ(fresh->calibration().phase, reused->calibration().phase);
  EXPECT_EQ(fresh->calibration().z, reused->calibration().z);
}

TEST_F(RecallCacheTest, ThreadsChangeNoBit) {
  const std::vector<uint16_t> rows = make_rows(9000);
  const auto cache = make_cache(tiny_options());
  cache->append(rows.data(), 9000);
  cache->maintain();
  std::vector<float> q = seeking_queries(rows, 8960);
  const std::vector<float> want = attend(*cache, q);
  for (const int n_threads : {1, 2, 3, 5}) {
    ThreadTeam team(n_threads);
    DecodeStep step(*cache);
    for (int repeat = 0; repeat < 5; ++repeat) {
      std::vector<float> out(want.size());
      team.attend(step, q.data(), out.data());
      ASSERT_EQ(out, want) << n_threads << " threads";
    }
  }
}

// Rows of f32 are attended to as they are: rounding them to f16 would be seen. Entries of the index
// are f16, and sound recall allows for that.
TEST_F(RecallCacheTest, FloatRowsWorkToo) {
  const int64_t n = 1100;
  const std::vector<float> rows = normal(n * kTinyShape.row_dim());
  std::vector<uint16_t> halves(rows.size());
  to_f16(rows.data(), halves.data(), std::ssize(rows));
  for (const bool sound : {true, false}) {
    RecallOptions options = tiny_options();
    options.sound = sound;
    const auto cache = make_cache(options, 2048, RowType::kF32);
    cache->append(rows.data(), n);
    cache->maintain();
    EXPECT_GT(cache->index().errors(0).side, 0) << "f16 entries round f32 branches";
    DecodeStep step(*cache);
    size_t n_winners = 0;
    for (int at = 0; at < 20; ++at) {
      const std::vector<float> q = seeking_queries(rows, cache->n_closed());
      const std::vector<float> out = attend(step, *cache, q);
      std::vector<int64_t> attended = near_rows(*cache);
      attended.insert(attended.end(), step.fetched().begin(), step.fetched().end());
      expect_near(out, exact(kTinyShape, q, rows, attended), kTolerance);
      EXPECT_GT(difference(out, exact(kTinyShape, q, halves, attended)), 3 * kTolerance);
      const std::vector<uint32_t> all = winners(*cache, q, rows);
      n_winners += all.size();
      if (sound) {
        EXPECT_TRUE(
            std::includes(step.fetched().begin(), step.fetched().end(), all.begin(), all.end()));
      }
      while (cache->maintain()) continue;
    }
    EXPECT_GT(n_winners, 50u);
    if (!sound) {
      EXPECT_EQ(cache->calibration().phase, CalibrationPhase::kCalibrated);
    }
  }
}

TEST_F(RecallCacheTest, RefusesOptionsThatDoNotFit) {
  const auto refused = [&](auto change) {
    RecallOptions options = tiny_options();
    change(options);
    EXPECT_THROW(make_cache(options), Error);
  };
  refused([](RecallOptions& options) { options.block_rows = 63; });
  refused([](RecallOptions& options) { options.keep_ratio = 0; });
  refused([](RecallOptions& options) { options.keep_ratio = 1.5; });
  refused([](RecallOptions& options) { options.sketch_rank = 64; });
  refused([](RecallOptions& options) { options.n_sinks = -1; });
  refused([](RecallOptions& options) { options.target.recall = 1; });
  refused([](RecallOptions& options) { options.min_steps = 1; });
  refused([](RecallOptions& options) { options.bins_per_4096 = 5000; });
}

}  // namespace
}  // namespace ctxzip::testing
