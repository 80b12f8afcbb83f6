#include "engine/gemma3_reference.h"

#include <algorithm>
#include <cmath>

#include "core/fail.h"
#include "kernels/half.h"
#include "model/architecture.h"

namespace ctxzip::test {
namespace {

Hyperparameters complete(const GgufFile& file) {
  Hyperparameters hp = read_hyperparameters(file);
  kGemma3Architecture.complete(file, hp);
  return hp;
}

std::string in_layer(int64_t layer, const char* name) {
  return "blk." + std::to_string(layer) + "." + name;
}

double as_f16(double x) { return half_to_float(float_to_half(static_cast<float>(x))); }

// ggml's GELU is a table over f16 values, and that is what libllama runs too.
double gelu(double exact) {
  if (exact <= -10) return 0;
  if (exact >= 10) return exact;
  const double x = as_f16(exact);
  return as_f16(0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))));
}

void add(std::vector<double>& x, const std::vector<double>& y) {
  for (size_t at = 0; at < x.size(); ++at) x[at] += y[at];
}

}  // namespace

Gemma3Reference::Gemma3Reference(const std::string& path) : file_(path), hp_(complete(file_)) {}

std::vector<double> Gemma3Reference::weight(const std::string& name) const {
  const TensorInfo* info = file_.find_tensor(name);
  CHECK(info != nullptr && info->type == GGML_TYPE_F32);
  const auto* values = reinterpret_cast<const float*>(info->data);
  return {values, values + info->n_bytes / sizeof(float)};
}

std::vector<double> Gemma3Reference::product(const std::vector<double>& x,
                                             const std::string& name) const {
  const TensorInfo* info = file_.find_tensor(name);
  const auto n_in = static_cast<size_t>(info->ne[0]);
  const auto n_out = static_cast<size_t>(info->ne[1]);
  const std::vector<double> w = weight(name);
  std::vector<double> y(x.size() / n_in * n_out);
  for (size_t row = 0; row < x.size() / n_in; ++row) {
    for (size_t out = 0; out < n_out; ++out) {
      double sum = 0;
      for (size_t in = 0; in < n_in; ++in) sum += x[row * n_in + in] * w[out * n_in + in];
      y[row * n_out + out] = sum;
    }
  }
  return y;
}

std::vector<double> Gemma3Reference::norm(const std::vector<double>& x,
                                          const std::string& name) const {
  const std::vector<double> w = weight(name);
  const size_t width = w.size();
  std::vector<double> y(x.size());
  for (size_t row = 0; row < x.size() / width; ++row) {
    double sum = 0;
    for (size_t at = 0; at < width; ++at) sum += x[row * width + at] * x[row * width + at];
    const double scale =
        1 / std::sqrt(sum / static_cast<double>(width) + static_cast<double>(hp_.norm_epsilon));
    for (size_t at = 0; at < width; ++at) y[row * width + at] = x[row * width + at] * scale * w[at];
  }
  return y;
}

void Gemma3Reference::rotate(std::vector<double>& rows, int64_t n_head, int64_t layer,
                             int64_t position) const {
  const double base = hp_.layers.is_local(layer) ? 10000.0 : 1000000.0;
  const int64_t half = hp_.head_dim / 2;
  for (size_t row = 0; row < rows.size() / static_cast<size_t>(hp_.head_dim); ++row) {
    const double at = static_cast<double>(position + static_cast<int64_t>(row) / n_head);
    double* head = rows.data() + row * static_cast<size_t>(hp_.head_dim);
    for (int64_t dim = 0; dim < half; ++dim) {
      const double angle =
          at * std::pow(base, -2.0 * static_cast<double>(dim) / static_cast<double>(hp_.head_dim));
      const double a = head[dim];
      const double b = head[dim + half];
      head[dim] = a * std::cos(angle) - b * std::sin(angle);
      head[dim + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

std::vector<double> Gemma3Reference::attend(const std::vector<double>& q, const Rows& rows,
                                            int64_t layer, int64_t n_past,
                                            const ScoreRange* range) const {
  const int64_t dim = hp_.head_dim;
  const int64_t n_tokens = static_cast<int64_t>(q.size()) / (hp_.n_head * dim);
  const bool local = hp_.layers.is_local(layer);
  const std::vector<double>& k = rows.k[static_cast<size_t>(layer)];
  const std::vector<double>& v = rows.v[static_cast<size_t>(layer)];
  const auto row_at = [&](int64_t row, int64_t kv_head) {
    return static_cast<size_t>((row * hp_.n_kv_head + kv_head) * dim);
  };
  const int64_t n_columns = range == nullptr ? 0 : range->last - range->first;
  std::vector<double> best(static_cast<size_t>(hp_.n_kv_head * n_columns));
  std::vector<double> out(q.size());
  for (int64_t at = 0; at < n_tokens * hp_.n_head; ++at) {
    const int64_t position = n_past + at / hp_.n_head;
    const int64_t kv_head = at % hp_.n_head / hp_.group();
    const double* query = q.data() + at * dim;
    std::vector<double> weights;
    const int64_t begin = local ? std::max<int64_t>(0, position - hp_.layers.window() + 1) : 0;
    for (int64_t row = begin; row <= position; ++row) {
      double sum = 0;
      for (int64_t d = 0; d < dim; ++d) {
        sum += query[d] * k[row_at(row, kv_head) + static_cast<size_t>(d)];
      }
      weights.push_back(std::exp(sum / std::sqrt(static_cast<double>(dim))));
    }
    double total = 0;
    for (const double w : weights) total += w;
    for (int64_t row = begin; row <= position; ++row) {
      const double share = weights[static_cast<size_t>(row - begin)] / total;
      for (int64_t d = 0; d < dim; ++d) {
        out[static_cast<size_t>(at * dim + d)] +=
            share * v[row_at(row, kv_head) + static_cast<size_t>(d)];
      }
    }
    if (range == nullptr || local) continue;
    double subset = 0;
    for (int64_t row = 0; row <= position; ++row) {
      const bool in_subset =
          row < range->n_prefix || row >= n_past || (row >= range->first && row < range->last);
      if (in_subset) subset += weights[static_cast<size_t>(row)];
    }
    for (int64_t column = 0; column < n_columns; ++column) {
      double& score = best[static_cast<size_t>(kv_head * n_columns + column)];
      score = std::max(score, weights[static_cast<size_t>(range->first + column)] / subset);
    }
  }
  if (range != nullptr && !local) range->out->insert(range->out->end(), best.begin(), best.end());
  return out;
}

Gemma3Reference::Rows Gemma3Reference::run(const Rows& past, std::span<const Token> tokens,
                                           const ScoreRange* range) const {
  const auto n_embd = static_cast<size_t>(hp_.n_embd);
  const std::vector<double> embedding = weight("token_embd.weight");
  std::vector<double> x;
  for (const Token token : tokens) {
    const size_t at = static_cast<size_t>(token) * n_embd;
    for (size_t d = 0; d < n_embd; ++d) {
      x.push_back(embedding[at + d] * std::sqrt(static_cast<double>(n_embd)));
    }
  }
  Rows rows = past;
  rows.k.resize(static_cast<size_t>(hp_.n_layer));
  rows.v.resize(static_cast<size_t>(hp_.n_layer));
  rows.n_rows += static_cast<int64_t>(tokens.size());
  for (int64_t layer = 0; layer < hp_.n_layer; ++layer) {
    const auto name = [layer](const char* part) { return in_layer(layer, part); };
    const std::vector<double> h = norm(x, name("attn_norm.weight"));
    std::vector<double> q = norm(product(h, name("attn_q.weight")), name("attn_q_norm.weight"));
    std::vector<double> k = norm(product(h, name("attn_k.weight")), name("attn_k_norm.weight"));
    const std::vector<double> v = product(h, name("attn_v.weight"));
    rotate(q, hp_.n_head, layer, past.n_rows);
    rotate(k, hp_.n_kv_head, layer, past.n_rows);
    std::vector<double>& all_k = rows.k[static_cast<size_t>(layer)];
    std::vector<double>& all_v = rows.v[static_cast<size_t>(layer)];
    all_k.insert(all_k.end(), k.begin(), k.end());
    all_v.insert(all_v.end(), v.begin(), v.end());
    const std::vector<double> attended = attend(q, rows, layer, past.n_rows, range);
    add(x, norm(product(attended, name("attn_output.weight")), name("post_attention_norm.weight")));
    const std::vector<double> f = norm(x, name("ffn_norm.weight"));
    std::vector<double> gate = product(f, name("ffn_gate.weight"));
    const std::vector<double> up = product(f, name("ffn_up.weight"));
    for (size_t at = 0; at < gate.size(); ++at) gate[at] = gelu(gate[at]) * up[at];
    add(x, norm(product(gate, name("ffn_down.weight")), name("post_ffw_norm.weight")));
  }
  return rows;
}

Gemma3Reference::Rows Gemma3Reference::prefill(std::span<const Token> tokens) const {
  return run({}, tokens, nullptr);
}

std::vector<double> Gemma3Reference::scores(const Rows& past, std::span<const Token> pass,
                                            int64_t n_prefix, int64_t first, int64_t last) const {
  std::vector<double> found;
  const ScoreRange range = {n_prefix, first, last, &found};
  run(past, pass, &range);
  return found;
}

}  // namespace ctxzip::test
