#include "score/branch_sigma.h"

#include <algorithm>
#include <optional>

#include "cache/read_row.h"
#include "core/fail.h"
#include "recall/recall_options.h"
#include "recall/sigma.h"
#include "score/protected_rows.h"

namespace ctxzip {

std::vector<float> row_parts(const DenseCache& rows, int64_t layer, int64_t kv_head,
                             int64_t content, RowPart part, int64_t first_row, int64_t n) {
  const KvShape& shape = rows.shape();
  const int64_t begin = part == RowPart::kBranch ? content : 0;
  const int64_t end = part == RowPart::kContent ? content : shape.head_dim;
  CHECK(begin < end);
  std::vector<float> row(static_cast<size_t>(shape.head_dim));
  std::vector<float> values;
  values.reserve(static_cast<size_t>(n * (end - begin)));
  for (int64_t at = first_row; at < first_row + n; ++at) {
    read_row(shape.row_type, rows.k_rows(layer, kv_head), at, row);
    values.insert(values.end(), row.begin() + begin, row.begin() + end);
  }
  return values;
}

void block_sigma(std::span<const float> values, int64_t dim, int64_t block_rows,
                 std::span<float> out) {
  const auto n_rows = static_cast<int64_t>(out.size());
  const double bins = RecallOptions{}.bins_per_4096;
  std::optional<LowPass> low_pass;
  for (int64_t begin = 0; begin < n_rows;) {
    const int64_t left = n_rows - begin;
    const int64_t n = left < block_rows + kMinClosedRows ? left : block_rows;
    const auto block = out.subspan(static_cast<size_t>(begin), static_cast<size_t>(n));
    if (n < 2) {  // nothing to compare with
      std::fill(block.begin(), block.end(), 0.0f);
      return;
    }
    if (!low_pass || low_pass->n_rows() != n) low_pass.emplace(n, low_pass_bins(n, bins));
    low_pass->sigma(values.subspan(static_cast<size_t>(begin * dim), static_cast<size_t>(n * dim)),
                    dim, block);
    begin += n;
  }
}

Scores sigma_scores(const DenseCache& rows, int64_t content, RowPart part, int64_t block_rows,
                    int64_t n_prefix, int64_t n_context) {
  const int64_t n_kv_head = rows.shape().n_kv_head;
  Scores scores = filled_scores(rows.shape().n_layer, n_kv_head, n_context, 0);
  for (int64_t head = 0; head < scores.n_layer * n_kv_head; ++head) {
    const int64_t layer = head / n_kv_head;
    const int64_t kv_head = head % n_kv_head;
    const std::vector<float> values =
        row_parts(rows, layer, kv_head, content, part, n_prefix, n_context);
    block_sigma(values, static_cast<int64_t>(values.size()) / n_context, block_rows,
                {scores.head(layer, kv_head), static_cast<size_t>(n_context)});
  }
  const float highest = *std::max_element(scores.values.begin(), scores.values.end());
  protect_rows(0, context_sinks(n_prefix, n_context), highest, scores);
  return scores;
}

}  // namespace ctxzip
