#include "eval/row_selection.h"

#include <charconv>

#include "core/fail.h"
#include "recall/calibrator.h"
#include "recall/partition.h"
#include "score/branch_sigma.h"
#include "score/method_table.h"
#include "score/protected_rows.h"

namespace ctxzip::eval {
namespace {

struct Named {
  std::string_view name;
  RowSelection selection;
};
constexpr Named kSelections[] = {
    {"sigma", {.scores = Method::kSigma}},
    {"sigma-row", {.scores = Method::kSigmaRow}},
    {"sigma-content", {.scores = Method::kSigmaContent}},
    {"h2o", {.scores = Method::kH2o}},
    {"h2o-recent", {.scores = Method::kH2o, .half_recent = true}},
    {"snapkv", {.scores = Method::kSnapKv}},
    {"streaming-llm", {.scores = Method::kStreamingLlm}},
    {"random", {.scores = Method::kRandom}},
};

// The coordinates (row, n) of `values` (row, dim) along their first n principal directions.
std::vector<float> along_principal(const std::vector<float>& values, int64_t dim, int64_t n) {
  std::vector<const float*> rows;
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(dim)) {
    rows.push_back(values.data() + at);
  }
  const std::vector<float> directions = principal_directions(rows, dim, n);
  if (directions.empty()) fail(ErrorKind::kInvalidArgument, "rows that are not finite");
  std::vector<float> out;
  for (const float* row : rows) {
    for (int64_t at = 0; at < n; ++at) {
      double sum = 0;
      for (int64_t d = 0; d < dim; ++d) {
        sum += static_cast<double>(row[d]) *
               static_cast<double>(directions[static_cast<size_t>(at * dim + d)]);
      }
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

RowPart part_of(Method method) {
  if (method == Method::kSigmaContent) return RowPart::kContent;
  return method == Method::kSigmaRow ? RowPart::kWhole : RowPart::kBranch;
}

Scores principal_sigma(const DenseCache& rows, int64_t content, const RowSelection& selection,
                       int64_t block_rows) {
  const KvShape& shape = rows.shape();
  const int64_t dim = shape.head_dim - content;
  if (selection.principal > dim) {
    fail(ErrorKind::kInvalidArgument, "{} principal directions: what is ranked has {} dimensions",
         selection.principal, dim);
  }
  Scores scores = filled_scores(shape.n_layer, shape.n_kv_head, rows.n_rows(), 0);
  for (int64_t head = 0; head < shape.n_layer * shape.n_kv_head; ++head) {
    const int64_t layer = head / shape.n_kv_head;
    const int64_t kv_head = head % shape.n_kv_head;
    const std::vector<float> values = along_principal(
        row_parts(rows, layer, kv_head, content, RowPart::kBranch, 0, scores.n_context), dim,
        selection.principal);
    block_sigma(values, selection.principal, block_rows,
                {scores.head(layer, kv_head), static_cast<size_t>(scores.n_context)});
  }
  return scores;
}

Scores row_scores(const detail::ModelState& model, Zipper& zipper, const RowSelection& selection,
                  int64_t block_rows) {
  if (method_traits(selection.scores).source != ScoreSource::kUnrotatedRows) {
    return zipper.scores(selection.scores);
  }
  // Not the zipper's own: it refuses rotated rows, which are the control here.
  const DenseCache& rows = zipper.full_rows().global;
  const int64_t content = model.hp.latent.content;
  const RowPart part = part_of(selection.scores);
  if (content == 0 && part != RowPart::kBranch) {
    fail(ErrorKind::kUnsupported,
         "rows of architecture '{}' are keys: they have no content beside a branch, only 'sigma' "
         "ranks them",
         model.hp.architecture);
  }
  if (selection.principal > 0) return principal_sigma(rows, content, selection, block_rows);
  return sigma_scores(rows, content, part, block_rows, 0, rows.n_rows());
}

}  // namespace

std::optional<RowSelection> find_selection(std::string_view name) {
  for (const Named& known : kSelections) {
    if (name == known.name) return known.selection;
  }
  constexpr std::string_view kPrincipal = "sigma-";
  if (!name.starts_with(kPrincipal)) return std::nullopt;
  name.remove_prefix(kPrincipal.size());
  RowSelection selection;
  const auto [end, error] =
      std::from_chars(name.data(), name.data() + name.size(), selection.principal);
  if (error != std::errc() || end != name.data() + name.size() || selection.principal < 1) {
    return std::nullopt;
  }
  return selection;
}

KeepSet select_layer_rows(const detail::ModelState& model, Zipper& zipper,
                          const RowSelection& selection, double ratio, int64_t block_rows) {
  const Scores scores = row_scores(model, zipper, selection, block_rows);
  const auto n = static_cast<size_t>(scores.n_context);
  const int64_t n_keep = rows_to_keep(scores.n_context, ratio);
  const int64_t n_recent = selection.half_recent ? n_keep / 2 : 0;
  const KeepRule rule = {.ratio = static_cast<double>(n_keep - n_recent) / static_cast<double>(n),
                         .n_sinks = kSinkTokens,
                         .n_recent = n_recent};
  KeepSet kept = keep_nothing(scores.n_layer, scores.n_kv_head);
  kept.n_context = scores.n_context;
  for (int64_t head = 0; head < scores.n_layer * scores.n_kv_head; ++head) {
    kept.rows[static_cast<size_t>(head)] =
        select_rows({scores.values.data() + head * scores.n_context, n}, rule);
  }
  return kept;
}

}  // namespace ctxzip::eval
