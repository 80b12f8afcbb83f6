// gemma3 in double precision, written plainly from its definition: every layer keeps every row, and
// windows are masks.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ctxzip/model.h"
#include "model/hyperparameters.h"
#include "score/scores.h"

namespace ctxzip::test {

class Gemma3Reference {
 public:
  // Takes f32 files.
  explicit Gemma3Reference(const std::string& path);

  // All rows so far, (layer)(row, kv_head, head_dim), rotated; row = position.
  struct Rows {
    int64_t n_rows = 0;
    std::vector<std::vector<double>> k, v;
  };

  // Rows of `tokens` after `past`.
  Rows prefill(std::span<const Token> tokens) const;

  // One reconstruction pass at the end of `past`: for each global layer and KV head, the largest
  // share that any of the pass's queries gives to each row of [first, last), of a softmax over rows
  // [0, n_prefix), [first, last) and the pass's own. (global layer, kv_head, last - first)
  std::vector<double> scores(const Rows& past, std::span<const Token> pass, int64_t n_prefix,
                             int64_t first, int64_t last) const;

 private:
  struct ScoreRange {
    int64_t n_prefix, first, last;
    std::vector<double>* out;
  };
  std::vector<double> weight(const std::string& name) const;
  // x (n, n_in) times the weight's transpose.
  std::vector<double> product(const std::vector<double>& x, const std::string& name) const;
  std::vector<double> norm(const std::vector<double>& x, const std::string& name) const;
  void rotate(std::vector<double>& rows, int64_t n_head, int64_t layer, int64_t position) const;
  std::vector<double> attend(const std::vector<double>& q, const Rows& rows, int64_t layer,
                             int64_t n_past, const ScoreRange* range) const;
  Rows run(const Rows& past, std::span<const Token> tokens, const ScoreRange* range) const;

  GgufFile file_;
  Hyperparameters hp_;
};

}  // namespace ctxzip::test
