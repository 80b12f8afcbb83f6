#include "recall/recall_cache.h"

#include <algorithm>
#include <cstring>

#include "core/fail.h"
#include "kernels/half.h"
#include "recall/partition.h"

namespace ctxzip {
namespace {

void check_options(const MlaShape& shape, const RecallOptions& options) {
  const auto refuse = [](const char* what, double found, const char* expected) {
    fail(ErrorKind::kInvalidArgument, "{} is {}, expected {}", what, found, expected);
  };
  if (shape.latent <= 0 || shape.latent % 8 != 0 || shape.branch <= 0 || shape.branch % 8 != 0) {
    fail(ErrorKind::kInvalidArgument,
         "rows of {} + {} values: expected a latent and a branch of multiples of 8", shape.latent,
         shape.branch);
  }
  if (shape.n_head < 1 || shape.n_head > kMaxRecallHeads) {
    refuse("the number of heads", static_cast<double>(shape.n_head), "1 to 256");
  }
  if (options.block_rows < kMinClosedRows) {
    refuse("the block length", static_cast<double>(options.block_rows), "64 rows or more");
  }
  if (!(options.keep_ratio > 0 && options.keep_ratio <= 1)) {
    refuse("the share of rows to keep", options.keep_ratio, "above 0 and at most 1");
  }
  if (!(options.bins_per_4096 > 0 && options.bins_per_4096 <= 2048)) {
    refuse("the number of slow bins", options.bins_per_4096, "above 0 and at most 2048");
  }
  if (!(options.target.recall > 0 && options.target.recall < 1)) {
    refuse("the recall target", options.target.recall, "between 0 and 1");
  }
  if (options.n_sinks < 0 || options.n_recent < 0 || options.top_per_head < 0 ||
      options.dense_below < 0) {
    fail(ErrorKind::kInvalidArgument, "a number of rows is negative, expected 0 or more");
  }
  if (options.min_steps < 2 || options.max_steps < options.min_steps) {
    fail(ErrorKind::kInvalidArgument,
         "calibration from {} to {} steps, expected 2 or more, the second not below the first",
         options.min_steps, options.max_steps);
  }
  if (options.max_fetched < 1) {
    refuse("the number of rows fetched", static_cast<double>(options.max_fetched), "1 or more");
  }
}

const MlaShape& checked(const MlaShape& shape, const RecallOptions& options) {
  check_options(shape, options);
  return shape;
}

}  // namespace

RecallCache::RecallCache(const MlaKernels& kernels, const MlaShape& shape, RowType type,
                         int64_t capacity, const RecallOptions& options)
    : kernels_(kernels),
      shape_(checked(shape, options)),
      type_(type),
      capacity_(capacity),
      options_(options),
      row_bytes_(ctxzip::row_bytes(type, shape.row_dim())),
      tail_capacity_(2 * options.block_rows),
      store_(row_bytes_, capacity, options.archive_path),
      index_(kernels, shape, sketch_rank(shape, options), capacity),
      calibrator_(kernels, shape, options) {
  tail_ = Mapping(static_cast<size_t>(tail_capacity_) * row_bytes_);
  const int64_t most_kept = std::min(capacity, rows_to_keep(capacity, options.keep_ratio) +
                                                   options.n_sinks + options.n_recent + 1);
  kept_copy_ = Mapping(static_cast<size_t>(most_kept) * row_bytes_);
  kept_bits_.assign(static_cast<size_t>((capacity + 63) / 64), 0);
  sigma_.reserve(static_cast<size_t>(capacity));
}

double RecallCache::effective_ratio() const {
  const auto attended = static_cast<double>(kept_.size()) + static_cast<double>(n_tail_);
  return attended > 0 ? static_cast<double>(n_rows()) / attended : 1;
}

MlaRows RecallCache::closed_rows() const { return {store_.rows(), type_, shape_.row_dim()}; }
MlaRows RecallCache::kept_rows() const { return {kept_copy_.data(), type_, shape_.row_dim()}; }
MlaRows RecallCache::tail_rows() const { return {tail_.data(), type_, shape_.row_dim()}; }
ArchiveView RecallCache::archive() const { return {closed_rows(), n_closed(), kept_bits_}; }

void RecallCache::append(const void* rows, int64_t n) {
  if (n_rows() + n > capacity_) {
    fail(ErrorKind::kTooLong, "{} rows and {} more do not fit a cache of {}", n_rows(), n,
         capacity_);
  }
  const auto* from = static_cast<const std::byte*>(rows);
  while (n > 0) {
    if (n_tail_ == tail_capacity_) close(options_.block_rows);
    const int64_t n_here = std::min(n, tail_capacity_ - n_tail_);
    const size_t bytes = static_cast<size_t>(n_here) * row_bytes_;
    std::memcpy(tail_.data() + static_cast<size_t>(n_tail_) * row_bytes_, from, bytes);
    n_tail_ += n_here;
    from += bytes;
    n -= n_here;
  }
}

bool RecallCache::close_now() {
  while (n_tail_ >= options_.block_rows) close(options_.block_rows);
  if (n_tail_ < kMinClosedRows) return false;
  close(n_tail_);
  return true;
}

bool RecallCache::maintain(int64_t max_rows) {
  bool closed = false;
  while (n_tail_ >= options_.block_rows) {
    close(options_.block_rows);
    closed = true;
  }
  if (!options_.recall || options_.sound) return closed;
  return calibrator_.work(archive(), index_, max_rows) || closed;
}

void RecallCache::clear() {
  n_tail_ = 0;
  store_.clear();
  kept_.clear();
  std::fill(kept_bits_.begin(), kept_bits_.end(), uint64_t{0});
  sigma_.clear();
  index_.clear();
  calibrator_.clear();
}

// Moves the first n rows of the tail to the closed ones.
void RecallCache::close(int64_t n) {
  const int64_t first = n_closed();
  store_.append(tail_.data(), n);
  n_tail_ -= n;
  std::memmove(tail_.data(), tail_.data() + static_cast<size_t>(n) * row_bytes_,
               static_cast<size_t>(n_tail_) * row_bytes_);
  rank_rows(first, n);
  index_.extend(closed_rows(), n_closed());
  repartition();
  calibrator_.partition_changed(index_);
  store_.drop_resident();
}

void RecallCache::rank_rows(int64_t first, int64_t n) {
  const bool prefix = options_.window == WindowForm::kPrefix;
  const int64_t from = prefix ? 0 : first;
  const int64_t n_ranked = prefix ? first + n : n;
  std::vector<float> branch(static_cast<size_t>(n_ranked * shape_.branch));
  for (int64_t row = 0; row < n_ranked; ++row) {
    float* to = branch.data() + row * shape_.branch;
    const int64_t at = (from + row) * shape_.row_dim() + shape_.latent;
    if (type_ == RowType::kF32) {
      std::copy_n(reinterpret_cast<const float*>(store_.rows()) + at, shape_.branch, to);
    } else {
      const auto* halves = reinterpret_cast<const uint16_t*>(store_.rows()) + at;
      std::transform(halves, halves + shape_.branch, to, half_to_float);
    }
  }
  sigma_.resize(static_cast<size_t>(first + n));
  const std::span<float> out(sigma_.data() + from, static_cast<size_t>(n_ranked));
  const int64_t n_bins = low_pass_bins(n_ranked, options_.bins_per_4096);
  if (prefix) {
    prefix_sigma(branch, shape_.branch, n_bins, out);
  } else if (n == options_.block_rows) {
    if (!low_pass_) low_pass_.emplace(n, n_bins);
    low_pass_->sigma(branch, shape_.branch, out);
  } else {
    LowPass(n, n_bins).sigma(branch, shape_.branch, out);
  }
}

void RecallCache::repartition() {
  kept_ = select_rows(sigma_, {options_.keep_ratio, options_.n_sinks, options_.n_recent});
  std::fill(kept_bits_.begin(), kept_bits_.end(), uint64_t{0});
  std::byte* to = kept_copy_.data();
  for (const uint32_t row : kept_) {
    kept_bits_[row / 64] |= uint64_t{1} << row % 64;
    std::memcpy(to, store_.rows() + size_t{row} * row_bytes_, row_bytes_);
    to += row_bytes_;
  }
}

}  // namespace ctxzip
