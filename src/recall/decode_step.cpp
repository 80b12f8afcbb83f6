#include "recall/decode_step.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Rows of the shortest block, and the most blocks of kept, tail and fetched rows each: partial
// results stay within a few megabytes whatever the number of rows.
constexpr int64_t kBlockRows = 256;
constexpr int64_t kMaxBlocks = 64;
constexpr int64_t kNearSlot = 0;
constexpr int64_t kTailSlot = kMaxBlocks;
constexpr int64_t kFetchedSlot = 2 * kMaxBlocks;
constexpr int64_t kSlots = 3 * kMaxBlocks;
constexpr int64_t kScanItemRows = 1024;
constexpr int64_t kMergeDims = 64;
static_assert(kScanItemRows % kErrorRows == 0 && kErrorRows % kScanRows == 0);

int64_t items(int64_t n, int64_t each) { return (n + each - 1) / each; }
size_t float_bytes(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }
float* floats(const Mapping& mapping) { return reinterpret_cast<float*>(mapping.data()); }

}  // namespace

void StepTotals::add(const StepCounts& step) noexcept {
  ++steps;
  triggered += step.fetched_rows > 0 || step.overflowed ? 1 : 0;
  dense += step.dense ? 1 : 0;
  overflowed += step.overflowed ? 1 : 0;
  fired_rows += step.fired_rows;
  fetched_rows += step.fetched_rows;
  scanned_entries += step.scanned_entries;
  bytes_read += step.bytes_read;
}

DecodeStep::Blocks::Blocks(int64_t rows)
    : n_rows(rows),
      rows_each(kBlockRows * std::max<int64_t>(1, items(items(rows, kBlockRows), kMaxBlocks))),
      n(items(rows, rows_each)) {}

DecodeStep::DecodeStep(RecallCache& cache)
    : cache_(cache),
      kernels_(cache.kernels()),
      shape_(cache.shape()),
      top_per_head_(std::min(cache.options().top_per_head, cache.capacity())),
      projection_(shape_, cache.index().basis().rank()) {
  const int64_t rank = cache.index().basis().rank();
  const int64_t scan_dim = shape_.branch + rank;
  const int64_t n_head = shape_.n_head;
  const auto padded = static_cast<size_t>(mla_padded(n_head));
  packed_ = Mapping(float_bytes(packed_floats(n_head, shape_.row_dim())));
  partials_ = Mapping(float_bytes(kSlots * partial_floats(shape_)));
  scan_packed_ = Mapping(float_bytes(packed_floats(n_head, scan_dim)));
  projection_scratch_ = Mapping(float_bytes(projection_scratch_floats(shape_, rank)));
  merged_.reserve(static_cast<size_t>(kSlots));
  best_kept_.resize(static_cast<size_t>(n_head));
  entropy_.resize(best_kept_.size());
  open_.reserve(best_kept_.size());
  scan_queries_.resize(static_cast<size_t>(n_head * scan_dim));
  slopes_.resize(padded);
  thresholds_.resize(padded);
  entry_scores_.resize(padded);
  fired_.resize(static_cast<size_t>((cache.capacity() + 63) / 64));
  fetched_.resize(static_cast<size_t>(std::min(cache.capacity(), cache.options().max_fetched)));
  best_found_.resize(static_cast<size_t>(n_head * top_per_head_));
  n_found_.resize(best_kept_.size());
}

float* DecodeStep::partial(int64_t slot) const {
  return floats(partials_) + slot * partial_floats(shape_);
}

void DecodeStep::attend_block(const MlaRows& rows, const Blocks& blocks, int64_t block,
                              int64_t slot) noexcept {
  const int64_t begin = block * blocks.rows_each;
  kernels_.attend(shape_, {floats(packed_), shape_.n_head, shape_.row_dim()}, rows, begin,
                  std::min(blocks.n_rows, begin + blocks.rows_each), partial(slot + block));
}

void DecodeStep::begin(const float* queries, float* out) noexcept {
  queries_ = queries;
  out_ = out;
  counts_ = {};
  counts_.dense = dense_ || cache_.n_rows() < cache_.options().dense_below;
  scanning_ = cache_.options().recall && !counts_.dense && cache_.n_archived() > 0;
  const auto n_kept = static_cast<int64_t>(cache_.kept().size());
  near_blocks_ = Blocks(counts_.dense ? cache_.n_closed() : n_kept);
  tail_blocks_ = Blocks(cache_.n_tail());
  fetched_blocks_ = Blocks();
  counts_.near_rows = near_blocks_.n_rows + tail_blocks_.n_rows;
  for (auto& next : next_) next.store(0, std::memory_order_relaxed);
  n_items_ = {};
  n_items_[kPack] = n_items_[kDecide] = n_items_[kGather] = 1;
  n_items_[kNear] = 1 + near_blocks_.n + tail_blocks_.n;
  n_items_[kMerge] = items(shape_.latent, kMergeDims);
}

void DecodeStep::run(int phase) noexcept {
  const auto at = static_cast<size_t>(phase);
  const int64_t n = n_items_[at];
  for (;;) {
    const int64_t item = next_[at].fetch_add(1, std::memory_order_relaxed);
    if (item >= n) return;
    switch (phase) {
      case kPack:
        pack();
        break;
      case kNear:
        near(item);
        break;
      case kDecide:
        decide();
        break;
      case kScan:
        scan(item);
        break;
      case kGather:
        gather();
        break;
      case kFetch:
        if (counts_.overflowed) {
          attend_block(cache_.closed_rows(), near_blocks_, item, kNearSlot);
        } else {
          MlaRows rows = cache_.closed_rows();
          rows.index = fetched_.data();
          attend_block(rows, fetched_blocks_, item, kFetchedSlot);
        }
        break;
      default:
        merge(item);
    }
  }
}

void DecodeStep::attend(const float* queries, float* out) noexcept {
  begin(queries, out);
  for (int phase = 0; phase < kPhases; ++phase) run(phase);
}

void DecodeStep::pack() noexcept {
  kernels_.pack(queries_, shape_.n_head, shape_.row_dim(), shape_.row_dim(), shape_.scale,
                floats(packed_));
}

void DecodeStep::near(int64_t item) noexcept {
  if (item == 0) {
    if (!scanning_) return;
    project_queries(kernels_, shape_, cache_.index().basis(), queries_,
                    {floats(packed_), shape_.n_head, shape_.row_dim()}, floats(projection_scratch_),
                    projection_);
  } else if (item <= near_blocks_.n) {
    attend_block(counts_.dense ? cache_.closed_rows() : cache_.kept_rows(), near_blocks_, item - 1,
                 kNearSlot);
  } else {
    attend_block(cache_.tail_rows(), tail_blocks_, item - 1 - near_blocks_.n, kTailSlot);
  }
}

int64_t DecodeStep::list_partials(int64_t n_fetched_blocks) noexcept {
  merged_.clear();
  for (int64_t at = 0; at < near_blocks_.n; ++at) merged_.push_back(partial(kNearSlot + at));
  for (int64_t at = 0; at < tail_blocks_.n; ++at) merged_.push_back(partial(kTailSlot + at));
  for (int64_t at = 0; at < n_fetched_blocks; ++at) merged_.push_back(partial(kFetchedSlot + at));
  return static_cast<int64_t>(merged_.size());
}

// What the near rows gave: which heads scan the index, and for what.
void DecodeStep::decide() noexcept {
  const int64_t n = list_partials(0);
  mla_stats(shape_, merged_.data(), n, best_kept_.data(), nullptr, entropy_.data());
  if (!scanning_) return;
  cache_.observe(queries_, best_kept_.data(), entropy_.data());
  open_.clear();
  for (int64_t head = 0; head < shape_.n_head; ++head) {
    const auto at = static_cast<size_t>(head);
    if (cache_.options().sound || entropy_[at] >= cache_.gates()[at]) open_.push_back(head);
  }
  counts_.open_heads = static_cast<int64_t>(open_.size());
  if (open_.empty()) return;
  prepare_scan();
  n_items_[kScan] = items(cache_.n_closed(), kScanItemRows);
  counts_.scanned_entries = cache_.n_closed();
}

void DecodeStep::prepare_scan() noexcept {
  const SketchBasis& basis = cache_.index().basis();
  const int64_t rank = basis.rank();
  const int64_t dim = shape_.branch + rank;
  std::fill(slopes_.begin(), slopes_.end(), 0.0f);
  std::fill(thresholds_.begin(), thresholds_.end(), kInfinity);
  const double share =
      cache_.calibration().z / std::sqrt(static_cast<double>(shape_.latent - rank));
  for (size_t at = 0; at < open_.size(); ++at) {
    const int64_t head = open_[at];
    const auto h = static_cast<size_t>(head);
    float* to = scan_queries_.data() + static_cast<int64_t>(at) * dim;
    const float* side = queries_ + head * shape_.row_dim() + shape_.latent;
    for (int64_t k = 0; k < shape_.branch; ++k) to[k] = side[k] * shape_.scale;
    std::copy_n(projection_.sketch.data() + head * rank, rank, to + shape_.branch);
    slopes_[at] = cache_.options().sound
                      ? projection_.residual_limit[h]
                      : static_cast<float>(share * double{projection_.residual[h]});
    thresholds_[at] = best_kept_[h];
  }
  kernels_.pack(scan_queries_.data(), counts_.open_heads, dim, dim, 1, floats(scan_packed_));
}

// The best kept score less what rounding may hide, rounded down.
void DecodeStep::sound_thresholds(int64_t row, float* thresholds) const noexcept {
  std::fill_n(thresholds, thresholds_.size(), kInfinity);
  for (size_t at = 0; at < open_.size(); ++at) {
    const double limit = rounding_limit(shape_, cache_.index().basis(), projection_, open_[at],
                                        cache_.index().errors(row));
    thresholds[at] =
        std::nextafter(static_cast<float>(double{thresholds_[at]} - limit), -kInfinity);
  }
}

void DecodeStep::scan(int64_t item) noexcept {
  const int64_t begin = item * kScanItemRows;
  const int64_t end = std::min(cache_.n_closed(), begin + kScanItemRows);
  const int64_t dim = shape_.branch + cache_.index().basis().rank();
  ScanQueries queries = {
      {floats(scan_packed_), counts_.open_heads, dim}, slopes_.data(), thresholds_.data()};
  const IndexRows index = cache_.index().rows();
  if (!cache_.options().sound) {
    kernels_.scan(queries, index, begin, end, fired_.data());
    return;
  }
  float thresholds[kMaxRecallHeads];
  queries.threshold = thresholds;
  for (int64_t row = begin; row < end; row += kErrorRows) {
    sound_thresholds(row, thresholds);
    kernels_.scan(queries, index, row, std::min(end, row + kErrorRows), fired_.data());
  }
}

// Lists the archived rows that fired, ascending.
void DecodeStep::gather() noexcept {
  if (counts_.scanned_entries > 0) {
    const auto n_words = static_cast<size_t>(items(cache_.n_closed(), 64));
    const std::span<const uint64_t> kept = cache_.kept_bits();
    for (size_t word = 0; word < n_words; ++word) {
      fired_[word] &= ~kept[word];
      counts_.fired_rows += std::popcount(fired_[word]);
    }
    if (top_per_head_ > 0) keep_best_of_each_head();
    for (size_t word = 0; word < n_words && !counts_.overflowed; ++word) {
      for (uint64_t bits = fired_[word]; bits != 0; bits &= bits - 1) {
        if (counts_.fetched_rows == static_cast<int64_t>(fetched_.size())) {
          counts_.overflowed = true;
          counts_.fetched_rows = 0;
          break;
        }
        fetched_[static_cast<size_t>(counts_.fetched_rows++)] =
            static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(bits));
      }
    }
  }
  if (counts_.overflowed) {
    near_blocks_ = Blocks(cache_.n_closed());
    counts_.near_rows = near_blocks_.n_rows + tail_blocks_.n_rows;
    n_items_[kFetch] = near_blocks_.n;
  } else {
    fetched_blocks_ = Blocks(counts_.fetched_rows);
    n_items_[kFetch] = fetched_blocks_.n;
  }
  list_partials(fetched_blocks_.n);
  finish();
}

// Reduces the fired rows to the union of each head's top_per_head by index score; ties go to the
// lower row.
void DecodeStep::keep_best_of_each_head() noexcept {
  const int64_t most = top_per_head_;
  const int64_t dim = shape_.branch + cache_.index().basis().rank();
  const auto better = [](const Found& a, const Found& b) {
    return a.score != b.score ? a.score > b.score : a.row < b.row;
  };
  float thresholds[kMaxRecallHeads];
  std::fill(n_found_.begin(), n_found_.end(), 0);
  const auto n_words = static_cast<size_t>(items(cache_.n_closed(), 64));
  const ScanQueries queries = {
      {floats(scan_packed_), counts_.open_heads, dim}, slopes_.data(), thresholds_.data()};
  for (size_t word = 0; word < n_words; ++word) {
    for (uint64_t bits = fired_[word]; bits != 0; bits &= bits - 1) {
      const auto row =
          static_cast<uint32_t>(word * 64) + static_cast<uint32_t>(std::countr_zero(bits));
      kernels_.scan_scores(queries, cache_.index().rows(), row, int64_t{row} + 1,
                           entry_scores_.data());
      std::copy(thresholds_.begin(), thresholds_.end(), thresholds);
      if (cache_.options().sound) sound_thresholds(row, thresholds);
      for (size_t at = 0; at < open_.size(); ++at) {
        if (!(entry_scores_[at] >= thresholds[at])) continue;
        Found* heap = best_found_.data() + static_cast<int64_t>(at) * most;
        const Found found = {entry_scores_[at], row};
        int64_t& n = n_found_[at];
        if (n == most) {  // the heap's front is its worst
          if (!better(found, heap[0])) continue;
          std::pop_heap(heap, heap + n--, better);
        }
        heap[n++] = found;
        std::push_heap(heap, heap + n, better);
      }
    }
    fired_[word] = 0;
  }
  for (size_t at = 0; at < open_.size(); ++at) {
    const Found* heap = best_found_.data() + static_cast<int64_t>(at) * most;
    for (int64_t k = 0; k < n_found_[at]; ++k) {
      fired_[heap[k].row / 64] |= uint64_t{1} << heap[k].row % 64;
    }
  }
}

void DecodeStep::finish() noexcept {
  const auto row_bytes = static_cast<int64_t>(cache_.row_bytes());
  // An overflow was noticed when kept rows had been read: they are read again with all the others.
  const auto n_again = counts_.overflowed ? static_cast<int64_t>(cache_.kept().size()) : 0;
  counts_.bytes_read = (counts_.near_rows + counts_.fetched_rows + n_again) * row_bytes +
                       counts_.scanned_entries * cache_.index().entry_bytes();
  totals_.add(counts_);
}

void DecodeStep::merge(int64_t item) noexcept {
  const int64_t first = item * kMergeDims;
  kernels_.merge(shape_, merged_.data(), static_cast<int64_t>(merged_.size()), first,
                 std::min(kMergeDims, shape_.latent - first), out_);
}

std::vector<double> DecodeStep::excluded_mass_limits() const {
  std::vector<double> limits(static_cast<size_t>(shape_.n_head), 0.0);
  if (counts_.dense || counts_.overflowed || cache_.n_archived() == 0) return limits;
  const int64_t rank = cache_.index().basis().rank();
  const int64_t dim = shape_.branch + rank;
  const int64_t padded = mla_padded(shape_.n_head);
  QueryProjection query(shape_, rank);
  const Mapping scratch(float_bytes(projection_scratch_floats(shape_, rank)));
  const Mapping packed(float_bytes(packed_floats(shape_.n_head, dim)));
  project_queries(kernels_, shape_, cache_.index().basis(), queries_,
                  {floats(packed_), shape_.n_head, shape_.row_dim()}, floats(scratch), query);
  std::vector<float> vectors(static_cast<size_t>(shape_.n_head * dim));
  for (int64_t head = 0; head < shape_.n_head; ++head) {
    float* to = vectors.data() + head * dim;
    const float* side = queries_ + head * shape_.row_dim() + shape_.latent;
    for (int64_t k = 0; k < shape_.branch; ++k) to[k] = side[k] * shape_.scale;
    std::copy_n(query.sketch.data() + head * rank, rank, to + shape_.branch);
  }
  kernels_.pack(vectors.data(), shape_.n_head, dim, dim, 1, floats(packed));
  std::vector<float> slopes(static_cast<size_t>(padded), 0.0f);
  std::copy(query.residual_limit.begin(), query.residual_limit.end(), slopes.begin());
  const std::vector<float> endless(static_cast<size_t>(padded), kInfinity);
  std::vector<float> log_sum(static_cast<size_t>(shape_.n_head));
  mla_stats(shape_, merged_.data(), static_cast<int64_t>(merged_.size()), nullptr, log_sum.data(),
            nullptr);
  std::vector<float> scores(static_cast<size_t>(padded));
  const std::span<const uint32_t> attended = fetched();
  for (int64_t row = 0; row < cache_.n_closed(); ++row) {
    if (cache_.kept_bits()[static_cast<size_t>(row / 64)] >> row % 64 & 1) continue;
    if (std::binary_search(attended.begin(), attended.end(), static_cast<uint32_t>(row))) continue;
    kernels_.scan_scores({{floats(packed), shape_.n_head, dim}, slopes.data(), endless.data()},
                         cache_.index().rows(), row, row + 1, scores.data());
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      const auto at = static_cast<size_t>(head);
      const double upper =
          double{scores[at]} +
          rounding_limit(shape_, cache_.index().basis(), query, head, cache_.index().errors(row));
      limits[at] += std::exp(upper - double{log_sum[at]});
    }
  }
  for (double& limit : limits) limit = std::min(1.0, limit);
  return limits;
}

}  // namespace ctxzip
