#include "recall/audit.h"

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <limits>
#include <unsupported/Eigen/SpecialFunctions>
#include <vector>

#include "core/fail.h"

namespace ctxzip {
namespace {

constexpr int64_t kRowsAtOnce = 64;

// The best score and row of each head.
struct Best {
  std::vector<float> score;
  std::vector<int64_t> row;
  explicit Best(int64_t n_head)
      : score(static_cast<size_t>(n_head), -std::numeric_limits<float>::infinity()),
        row(static_cast<size_t>(n_head), -1) {}
};

void find_best(const MlaKernels& kernels, const PackedVectors& queries, const MlaRows& rows,
               int64_t n_rows, int64_t first_number, Best& best) {
  const int64_t padded = mla_padded(queries.n);
  std::vector<float> scores(static_cast<size_t>(kRowsAtOnce * padded));
  for (int64_t first = 0; first < n_rows; first += kRowsAtOnce) {
    const int64_t end = std::min(n_rows, first + kRowsAtOnce);
    kernels.products(queries, rows, first, end, scores.data());
    for (int64_t row = first; row < end; ++row) {
      for (int64_t head = 0; head < queries.n; ++head) {
        const float score = scores[static_cast<size_t>((row - first) * padded + head)];
        const auto at = static_cast<size_t>(head);
        if (score <= best.score[at]) continue;
        best.score[at] = score;
        best.row[at] = first_number + row;
      }
    }
  }
}

double incomplete_beta(double a, double b, double x) { return Eigen::numext::betainc(a, b, x); }

// The x at which the distribution Beta(a, b) reaches `share`.
double beta_quantile(double a, double b, double share) {
  double low = 0;
  double high = 1;
  while (high - low > 1e-12) {
    const double middle = (low + high) / 2;
    (incomplete_beta(a, b, middle) < share ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace

AuditCounts audit_step(const RecallCache& cache, const DecodeStep& step, const float* queries) {
  const MlaShape& shape = cache.shape();
  const Mapping packed(static_cast<size_t>(packed_floats(shape.n_head, shape.row_dim())) *
                       sizeof(float));
  auto* vectors = reinterpret_cast<float*>(packed.data());
  cache.kernels().pack(queries, shape.n_head, shape.row_dim(), shape.row_dim(), shape.scale,
                       vectors);
  const PackedVectors all = {vectors, shape.n_head, shape.row_dim()};
  Best best(shape.n_head);
  find_best(cache.kernels(), all, cache.closed_rows(), cache.n_closed(), 0, best);
  find_best(cache.kernels(), all, cache.tail_rows(), cache.n_tail(), cache.n_closed(), best);
  const bool everything = step.counts().dense || step.counts().overflowed;
  const auto fetched = step.fetched();
  AuditCounts counts;
  for (const int64_t row : best.row) {
    if (row < 0 || row >= cache.n_closed()) continue;
    if (cache.kept_bits()[static_cast<size_t>(row / 64)] >> row % 64 & 1) continue;
    ++counts.queries;
    const bool found = everything || std::binary_search(fetched.begin(), fetched.end(),
                                                        static_cast<uint32_t>(row));
    counts.found += found ? 1 : 0;
  }
  return counts;
}

ProportionLimits clopper_pearson(int64_t found, int64_t n, double error) {
  CHECK(found >= 0 && found <= n && error > 0 && error < 1);
  const auto hits = static_cast<double>(found);
  const auto misses = static_cast<double>(n - found);
  return {.lower = found == 0 ? 0 : beta_quantile(hits, misses + 1, error / 2),
          .upper = found == n ? 1 : beta_quantile(hits + 1, misses, 1 - error / 2)};
}

int64_t audits_to_pass(double target, double error) {
  return static_cast<int64_t>(std::ceil(std::log(error / 2) / std::log(target)));
}

}  // namespace ctxzip
