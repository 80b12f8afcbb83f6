#include "score/output_norms.h"

#include <cmath>

#include "cache/read_row.h"
#include "core/fail.h"
#include "model/weight_rows.h"

namespace ctxzip {
namespace {

// v' grams v, through a matrix (dim, dim).
double quadratic_form(const std::vector<float>& gram, const std::vector<float>& v) {
  const size_t dim = v.size();
  std::vector<float> product(dim);
  for (size_t left = 0; left < dim; ++left) {
    const float* row = gram.data() + left * dim;
    for (size_t right = 0; right < dim; ++right) product[right] += v[left] * row[right];
  }
  double sum = 0;
  for (size_t at = 0; at < dim; ++at) {
    sum += static_cast<double>(product[at]) * static_cast<double>(v[at]);
  }
  return sum;
}

// W'W of each query head's part W of a layer's output projection: (query head, dim, dim). The norms
// of many values are cheaper from it than from W.
std::vector<std::vector<float>> output_grams(const detail::ModelState& model, int64_t layer) {
  const Hyperparameters& hp = model.hp;
  const auto dim = static_cast<size_t>(hp.head_dim);
  const std::string name = fmt::format("blk.{}.attn_output.weight", layer);
  std::vector<std::vector<float>> grams(static_cast<size_t>(hp.n_head),
                                        std::vector<float>(dim * dim));
  std::vector<float> row(dim * grams.size());
  for (int64_t out = 0; out < hp.n_embd; ++out) {
    read_weight_row(model.file, name, out, row);
    for (size_t head = 0; head < grams.size(); ++head) {
      const float* part = row.data() + head * dim;
      for (size_t left = 0; left < dim; ++left) {
        float* to = grams[head].data() + left * dim;
        for (size_t right = 0; right < dim; ++right) to[right] += part[left] * part[right];
      }
    }
  }
  return grams;
}

}  // namespace

void output_norm_logs(const detail::ModelState& model, const DenseCache& rows, int64_t first_row,
                      int64_t begin, int64_t n, int64_t n_context, std::vector<float>& logs) {
  const Hyperparameters& hp = model.hp;
  const KvShape& shape = rows.shape();
  CHECK(static_cast<int64_t>(logs.size()) == shape.n_layer * hp.n_head * n_context);
  std::vector<float> value(static_cast<size_t>(shape.head_dim));
  for (int64_t index = 0; index < shape.n_layer; ++index) {
    const auto grams = output_grams(model, hp.layers.global_layers()[static_cast<size_t>(index)]);
    for (int64_t head = 0; head < hp.n_head; ++head) {
      const std::byte* const values = rows.v_rows(index, head / hp.group());
      float* const to = logs.data() + (index * hp.n_head + head) * n_context + begin;
      for (int64_t row = 0; row < n; ++row) {
        read_row(shape.row_type, values, first_row + row, value);
        const double square = quadratic_form(grams[static_cast<size_t>(head)], value);
        to[row] = static_cast<float>(0.5 * std::log(std::max(square, 0.0)));
      }
    }
  }
}

}  // namespace ctxzip
