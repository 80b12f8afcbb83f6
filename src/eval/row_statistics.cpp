#include "eval/row_statistics.h"

#include <Eigen/Dense>
#include <algorithm>
#include <numeric>

#include "core/fail.h"

namespace ctxzip::eval {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Rows = Eigen::Map<const Matrix>;

constexpr int64_t kTokensAtOnce = 64;

Rows rows_of(const MlaShape& shape, const LayerCapture& layer, int64_t n) {
  CHECK(static_cast<int64_t>(layer.rows.size()) >= n * shape.row_dim());
  return {layer.rows.data(), n, shape.row_dim()};
}

// Queries (head, row_dim) of n tokens from `token` on, one after the other.
Rows queries_of(const MlaShape& shape, const LayerCapture& layer, int64_t token, int64_t n = 1) {
  return {layer.queries.data() + token * shape.n_head * shape.row_dim(), n * shape.n_head,
          shape.row_dim()};
}

int64_t best_of(const Eigen::Ref<const Eigen::RowVectorXf>& scores) {
  Eigen::Index best = 0;
  scores.maxCoeff(&best);
  return best;
}

struct Pages {
  Matrix centres;  // (page, row_dim)
  Eigen::VectorXf radius;
};

Pages make_pages(const Rows& rows, PageRadius radius) {
  const int64_t n_pages = (rows.rows() + kPageRows - 1) / kPageRows;
  Pages pages{.centres = Matrix(n_pages, rows.cols()), .radius = Eigen::VectorXf(n_pages)};
  for (int64_t page = 0; page < n_pages; ++page) {
    const int64_t first = page * kPageRows;
    const auto part = rows.middleRows(first, std::min(kPageRows, rows.rows() - first));
    pages.centres.row(page) = part.colwise().mean();
    const Eigen::VectorXf distance = (part.rowwise() - pages.centres.row(page)).rowwise().norm();
    pages.radius[page] = radius == PageRadius::kMean ? distance.mean() : distance.maxCoeff();
  }
  return pages;
}

}  // namespace

HitCount same_best_row(const QuerySet& set, int64_t begin, int64_t end) {
  const Rows rows = rows_of(set.shape, set.layer, set.n_rows);
  HitCount count;
  for (const int64_t token : set.at) {
    const Rows queries = queries_of(set.shape, set.layer, token);
    const Matrix whole = queries * rows.transpose();
    const Matrix part =
        queries.middleCols(begin, end - begin) * rows.middleCols(begin, end - begin).transpose();
    for (int64_t head = 0; head < queries.rows(); ++head) {
      count.hits += best_of(whole.row(head)) == best_of(part.row(head)) ? 1 : 0;
      ++count.n;
    }
  }
  return count;
}

HitCount winning_rows(const MlaShape& shape, const LayerCapture& layer, int64_t n_tokens) {
  std::vector<char> won(static_cast<size_t>(n_tokens));
  for (int64_t first = 0; first < n_tokens; first += kTokensAtOnce) {
    const int64_t n = std::min(kTokensAtOnce, n_tokens - first);
    const Matrix scores =
        queries_of(shape, layer, first, n) * rows_of(shape, layer, first + n).transpose();
    for (int64_t query = 0; query < scores.rows(); ++query) {
      const int64_t seen = first + query / shape.n_head + 1;
      won[static_cast<size_t>(best_of(scores.row(query).head(seen)))] = 1;
    }
  }
  return {.hits = std::accumulate(won.begin(), won.end(), int64_t{0}), .n = n_tokens};
}

HitCount pages_found(const QuerySet& set, PageRadius radius, int64_t n_best) {
  const Rows rows = rows_of(set.shape, set.layer, set.n_rows);
  const Pages pages = make_pages(rows, radius);
  HitCount count;
  for (const int64_t token : set.at) {
    const Rows queries = queries_of(set.shape, set.layer, token);
    const Matrix scores = queries * rows.transpose();
    Matrix digests = queries * pages.centres.transpose();
    digests += queries.rowwise().norm() * pages.radius.transpose();
    for (int64_t head = 0; head < queries.rows(); ++head) {
      const float wanted = digests(head, best_of(scores.row(head)) / kPageRows);
      const auto better = (digests.row(head).array() > wanted).count();
      count.hits += better < n_best ? 1 : 0;
      ++count.n;
    }
  }
  return count;
}

}  // namespace ctxzip::eval
