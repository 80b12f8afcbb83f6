#include "eval/recall_statistics.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/half.h"
#include "recall/decode_step.h"

namespace ctxzip::eval {
namespace {

class RecallRun {
 public:
  RecallRun(const MlaShape& shape, const LayerCapture& layer, const RecallOptions& options)
      : shape_(shape),
        layer_(layer),
        halves_(layer.rows.size()),
        cache_(tuned_mla_kernels(), shape, RowType::kF16, n_tokens(), options),
        step_(cache_),
        out_(static_cast<size_t>(shape.n_head * shape.latent)) {
    to_f16(layer.rows.data(), halves_.data(), static_cast<int64_t>(halves_.size()));
  }

  int64_t n_tokens() const { return static_cast<int64_t>(layer_.rows.size()) / shape_.row_dim(); }

  void close_text(int64_t n_text) {
    constexpr int64_t kRows = 256;
    for (int64_t row = 0; row < n_text; row += kRows) {
      append(row, std::min(kRows, n_text - row));
      settle();
    }
    cache_.close_now();
  }

  void decode(int64_t token) {
    append(token, 1);
    step_.attend(queries(token), out_.data());
  }
  void maintain() { cache_.maintain(); }
  void settle() {
    while (cache_.maintain()) {
    }
  }
  bool holds() const { return cache_.calibration().holds(); }

  // Of the step just done.
  void count(int64_t token, RecallCounts& counts) const {
    ++counts.steps;
    counts.fetched_rows += step_.counts().fetched_rows;
    counts.triggered += step_.counts().fetched_rows > 0 ? 1 : 0;
    counts.bytes_read += step_.counts().bytes_read;
    counts.bytes_dense += cache_.n_rows() * static_cast<int64_t>(cache_.row_bytes());
    const std::vector<char> attended = attended_rows();
    for (int64_t head = 0; head < shape_.n_head; ++head) {
      count_query(queries(token) + head * shape_.row_dim(), attended, counts);
    }
  }

 private:
  enum Attended : char { kArchived, kFetched, kNear };

  const float* queries(int64_t token) const {
    return layer_.queries.data() + token * shape_.n_head * shape_.row_dim();
  }
  void append(int64_t row, int64_t n) { cache_.append(halves_.data() + row * shape_.row_dim(), n); }

  // (row)
  std::vector<char> attended_rows() const {
    const bool dense = step_.counts().dense || step_.counts().overflowed;
    std::vector<char> rows(static_cast<size_t>(cache_.n_rows()), dense ? kFetched : kArchived);
    for (const uint32_t row : step_.fetched()) rows[row] = kFetched;
    for (const uint32_t row : cache_.kept()) rows[row] = kNear;
    std::fill(rows.begin() + cache_.n_closed(), rows.end(), char{kNear});
    return rows;
  }

  void count_query(const float* query, const std::vector<char>& attended,
                   RecallCounts& counts) const {
    std::vector<double> scores(attended.size());
    for (size_t row = 0; row < scores.size(); ++row) {
      const float* values = layer_.rows.data() + static_cast<int64_t>(row) * shape_.row_dim();
      double sum = 0;
      for (int64_t at = 0; at < shape_.row_dim(); ++at)
        sum += double{query[at]} * double{values[at]};
      scores[row] = sum * static_cast<double>(shape_.scale);
    }
    const auto best = std::max_element(scores.begin(), scores.end());
    double all = 0;
    double missed = 0;
    for (size_t row = 0; row < scores.size(); ++row) {
      const double weight = std::exp(scores[row] - *best);
      all += weight;
      if (attended[row] == kArchived) missed += weight;
    }
    const char how = attended[static_cast<size_t>(best - scores.begin())];
    ++counts.queries;
    counts.hard += how != kNear ? 1 : 0;
    counts.found += how == kFetched ? 1 : 0;
    counts.missed_mass += missed / all;
  }

  MlaShape shape_;
  const LayerCapture& layer_;
  std::vector<uint16_t> halves_;
  RecallCache cache_;
  DecodeStep step_;
  std::vector<float> out_;
};

}  // namespace

RecallCounts count_recall(const MlaShape& shape, const LayerCapture& layer, int64_t n_text,
                          int64_t first_measured, const RecallOptions& options) {
  RecallRun run(shape, layer, options);
  run.close_text(n_text);
  for (int64_t token = n_text; token < first_measured; ++token) {
    run.decode(token);
    run.maintain();
  }
  run.settle();
  RecallCounts counts{.holds = true};
  for (int64_t token = first_measured; token < run.n_tokens(); ++token) {
    counts.holds &= run.holds();
    run.decode(token);
    run.count(token, counts);
    run.maintain();
  }
  return counts;
}

}  // namespace ctxzip::eval
