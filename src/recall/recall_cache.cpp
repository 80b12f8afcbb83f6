#include "recall/recall_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/fail.h"
#include "kernels/half.h"
#include "recall/partition.h"

namespace ctxzip {
namespace {

const MlaShape& checked(const MlaShape& shape, const RecallOptions& options) {
  if (const auto problem = options_problem(shape, options)) {
    fail(ErrorKind::kInvalidArgument, "{}", *problem);
  }
  return shape;
}

// Beyond any text; no product of these overflows.
constexpr int64_t kMostRows = INT32_MAX;

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

void RecallCache::append_newest(const std::byte* row) noexcept {
  CHECK(n_tail_ < tail_capacity_ && n_rows() < capacity_);
  std::memcpy(tail_.data() + static_cast<size_t>(n_tail_) * row_bytes_, row, row_bytes_);
  ++n_tail_;
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

void RecallCache::take_back(int64_t n_rows, int64_t n_observed) {
  CHECK(n_rows >= n_closed());
  n_tail_ = std::min(n_tail_, n_rows - n_closed());
  if (calibrator_.n_observed() > n_observed) calibrator_.forget_after(n_observed);
}

RecallState RecallCache::state() const {
  return {.n_closed = n_closed(),
          .n_tail = n_tail_,
          .sigma = sigma_,
          .kept = kept_,
          .basis = index_.basis_rows(),
          .calibration = calibrator_.record(index_)};
}

void RecallCache::rewind(const RecallState& state) {
  CHECK(state.n_closed <= n_closed() && state.n_rows() <= n_rows());
  // The tail of then, where it was closed since.
  const int64_t n_closed_since = std::min(state.n_tail, n_closed() - state.n_closed);
  const size_t moved = static_cast<size_t>(n_closed_since) * row_bytes_;
  std::memmove(tail_.data() + moved, tail_.data(),
               static_cast<size_t>(state.n_tail - n_closed_since) * row_bytes_);
  std::memcpy(tail_.data(), store_.rows() + static_cast<size_t>(state.n_closed) * row_bytes_,
              moved);
  store_.truncate(state.n_closed);
  set_state(state);
}

void RecallCache::restore(const RecallState& state, const void* rows) {
  CHECK(n_rows() == 0);
  if (const auto problem = state_problem(state, shape_, options_)) {
    fail(ErrorKind::kInvalidArgument, "a stored state does not fit: {}", *problem);
  }
  if (state.n_rows() > capacity_ || state.n_tail > tail_capacity_) {
    fail(ErrorKind::kTooLong, "{} rows do not fit a cache of {}", state.n_rows(), capacity_);
  }
  const auto* from = static_cast<const std::byte*>(rows);
  const size_t closed_bytes = static_cast<size_t>(state.n_closed) * row_bytes_;
  if (state.n_closed > 0) store_.append(from, state.n_closed);
  if (state.n_tail > 0) {
    std::memcpy(tail_.data(), from + closed_bytes, static_cast<size_t>(state.n_tail) * row_bytes_);
  }
  set_state(state);
  store_.drop_resident();
}

// All but the rows, which are there.
void RecallCache::set_state(const RecallState& state) {
  n_tail_ = state.n_tail;
  sigma_ = state.sigma;
  kept_ = state.kept;
  mark_kept();
  index_.reset(closed_rows(), n_closed(), state.basis);
  calibrator_.restore(state.calibration, archive(), index_);
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
  mark_kept();
}

void RecallCache::mark_kept() {
  std::fill(kept_bits_.begin(), kept_bits_.end(), uint64_t{0});
  std::byte* to = kept_copy_.data();
  for (const uint32_t row : kept_) {
    kept_bits_[row / 64] |= uint64_t{1} << row % 64;
    std::memcpy(to, store_.rows() + size_t{row} * row_bytes_, row_bytes_);
    to += row_bytes_;
  }
}

std::optional<std::string> options_problem(const MlaShape& shape, const RecallOptions& options) {
  const auto differs = [](const char* what, auto found, const char* expected) {
    return fmt::format("{} is {}, expected {}", what, found, expected);
  };
  if (shape.latent <= 0 || shape.latent % 8 != 0 || shape.branch <= 0 || shape.branch % 8 != 0) {
    return fmt::format("rows of {} + {} values: expected a latent and a branch of multiples of 8",
                       shape.latent, shape.branch);
  }
  if (shape.n_head < 1 || shape.n_head > kMaxRecallHeads) {
    return differs("the number of heads", shape.n_head, "1 to 256");
  }
  if (options.block_rows < kMinClosedRows || options.block_rows > kMostRows) {
    return differs("the block length", options.block_rows, "64 rows or more");
  }
  if (!(options.keep_ratio > 0 && options.keep_ratio <= 1)) {
    return differs("the share of rows to keep", options.keep_ratio, "above 0 and at most 1");
  }
  if (!(options.bins_per_4096 > 0 && options.bins_per_4096 <= 2048)) {
    return differs("the number of slow bins", options.bins_per_4096, "above 0 and at most 2048");
  }
  if (!(options.target.recall > 0 && options.target.recall < 1)) {
    return differs("the recall target", options.target.recall, "between 0 and 1");
  }
  if (!(options.z_max >= 0 && std::isfinite(options.z_max))) {
    return differs("the largest z", options.z_max, "0 or more");
  }
  const int64_t rank = sketch_rank(shape, options);
  if (rank <= 0 || rank % 8 != 0 || rank >= shape.latent) {
    return fmt::format("the sketch rank is {}, expected a multiple of 8 below the latent of {}",
                       rank, shape.latent);
  }
  if (options.sound && options.top_per_head > 0) {
    return fmt::format(
        "sound recall with at most {} rows for a head: it misses nothing only if it may fetch all "
        "rows that fire",
        options.top_per_head);
  }
  for (const int64_t n : {options.n_sinks, options.n_recent, options.top_per_head,
                          options.dense_below, options.max_fetched}) {
    if (n < 0 || n > kMostRows) return differs("a number of rows", n, "0 or more");
  }
  if (options.max_fetched < 1) {
    return differs("the number of rows fetched", options.max_fetched, "1 or more");
  }
  if (options.min_steps < 2 || options.max_steps < options.min_steps) {
    return fmt::format(
        "calibration from {} to {} steps, expected 2 or more, the second not below the first",
        options.min_steps, options.max_steps);
  }
  return std::nullopt;
}

std::optional<std::string> state_problem(const RecallState& state, const MlaShape& shape,
                                         const RecallOptions& options) {
  const auto differs = [](const char* what, size_t found, int64_t expected) {
    return fmt::format("{} has {} entries, expected {}", what, found, expected);
  };
  const CalibrationRecord& record = state.calibration;
  const int64_t rank = sketch_rank(shape, options);
  const auto size_is = [](const auto& values, int64_t n) {
    return values.size() == static_cast<size_t>(n);
  };
  if (!size_is(state.sigma, state.n_closed)) {
    return differs("sigma", state.sigma.size(), state.n_closed);
  }
  if (!size_is(state.basis, rank * shape.latent)) {
    return differs("the basis", state.basis.size(), rank * shape.latent);
  }
  if (!size_is(record.gates, shape.n_head)) {
    return differs("the gates", record.gates.size(), shape.n_head);
  }
  const auto nan = [](float value) { return std::isnan(value); };
  const auto finite = [](float value) { return std::isfinite(value); };
  for (const auto* values :
       {&state.sigma, &record.gates, &record.best_kept, &record.entropy, &record.best_archived}) {
    if (std::ranges::any_of(*values, nan)) return "a value is no number";
  }
  if (!std::ranges::all_of(state.basis, finite) || !std::ranges::all_of(record.queries, finite)) {
    return "a value of the basis or of a query is not finite";
  }
  if (state.kept !=
      select_rows(state.sigma, {options.keep_ratio, options.n_sinks, options.n_recent})) {
    return fmt::format("the {} kept rows are not those of largest sigma", state.kept.size());
  }
  const auto n = static_cast<int64_t>(record.best_kept.size());
  const int64_t n_steps = n / shape.n_head;
  if (n % shape.n_head != 0 || n_steps > options.max_steps || !size_is(record.entropy, n) ||
      !size_is(record.best_archived, n) || !size_is(record.target, n) ||
      !size_is(record.queries, n * shape.row_dim())) {
    return fmt::format("{} observed queries of {} heads, expected at most {} steps", n,
                       shape.n_head, options.max_steps);
  }
  const bool counts_fit = record.n_labelled >= 0 && record.n_labelled <= n_steps &&
                          record.labelled_rows >= 0 && record.labelled_rows <= state.n_closed &&
                          record.n_rebuilt >= 0 &&
                          record.n_rebuilt < std::max<int64_t>(1, state.n_closed);
  const bool at_work =
      record.stage == CalibrationStage::kFit || record.stage == CalibrationStage::kRebuild;
  if (!counts_fit || (at_work && (state.n_closed == 0 || record.n_labelled == 0))) {
    return std::string("the calibration's progress does not fit the rows");
  }
  if (!std::ranges::all_of(record.target, [&](uint32_t row) { return row < state.n_closed; })) {
    return std::string("an observed query's best row is not among the closed ones");
  }
  return std::nullopt;
}

}  // namespace ctxzip
