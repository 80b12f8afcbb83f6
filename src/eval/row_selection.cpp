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

Scores row_scores(const detail::ModelState& model, Zipper& zipper, const RowSelection& selection,
                  int64_t block_rows) {
  if (method_traits(selection.scores).source != ScoreSource::kUnrotatedRows) {
    return zipper.scores(selection.scores);
  }
  // Not the zipper's own: it refuses rotated rows, which are the control here.
  const DenseCache& rows = zipper.full_rows().global;
  const int64_t content = model.hp.latent.content;
  const int64_t n = rows.n_rows();
  if (selection.principal == 0) {
    return sigma_scores(rows, content, part_of(selection.scores), block_rows, 0, n);
  }
  if (selection.principal > model.hp.latent.branch) {
    fail(ErrorKind::kInvalidArgument, "{} principal directions: the branch has {} dimensions",
         selection.principal, model.hp.latent.branch);
  }
  Scores scores = filled_scores(rows.shape().n_layer, 1, n, 0);
  for (int64_t layer = 0; layer < scores.n_layer; ++layer) {
    const std::vector<float> values =
        along_principal(row_parts(rows, layer, 0, content, RowPart::kBranch, 0, n),
                        model.hp.latent.branch, selection.principal);
    block_sigma(values, selection.principal, block_rows,
                {scores.head(layer, 0), static_cast<size_t>(n)});
  }
  return scores;
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
  KeepSet kept = keep_nothing(scores.n_layer, 1);
  kept.n_context = scores.n_context;
  for (int64_t layer = 0; layer < scores.n_layer; ++layer) {
    kept.rows[static_cast<size_t>(layer)] = select_rows({scores.head(layer, 0), n}, rule);
  }
  return kept;
}

}  // namespace ctxzip::eval
