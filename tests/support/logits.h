// Comparing two sets of logits, (n_rows, n_vocab).
#pragma once

#include <cstdint>
#include <span>

namespace ctxzip::test {

// ggml looks GELU up in a table by the f16 form of its input, so a last bit moves to another entry:
// what logits of models with GELU may differ by where those of others differ by 2e-3.
constexpr double kGeluLogitDelta = 1e-2;

struct LogitDifference {
  double mean_kl = 0;  // KL(expected || found), nats
  double max_kl = 0;
  double bulk_kl = 0;         // mean KL without the worst hundredth of the rows
  double max_delta = 0;       // of logits after their row means are taken out
  double top1_agreement = 0;  // share of rows
  double mean_entropy = 0;    // of the expected distributions, nats
};

LogitDifference compare_logits(std::span<const float> expected, std::span<const float> found,
                               int64_t n_vocab);

}  // namespace ctxzip::test
