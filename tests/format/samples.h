// Contexts to write, made of arbitrary bytes from a fixed seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format/ctz.h"

namespace ctxzip {

struct Sample {
  CtzMeta meta;
  ContextRows rows;
};

struct SampleOptions {
  std::string layers = "ggg";  // LayerKind letters
  int64_t window = 0;
  int64_t value_dim = 0;   // not 0: values lie in keys
  int64_t state_size = 0;  // of recurrent layers
  int64_t n_kv_head = 2;
  int64_t head_dim = 8;
  RowType row_type = RowType::kF16;
  int64_t n_prefix = 3;
  int64_t n_context = 21;
  double ratio = 0.3;  // chance of each row; the first head of a context keeps nothing
  // Under VestigeKV, with as many closed rows; needs latent rows, one KV head and a ratio of 1.
  int64_t n_closed = -1;
  int64_t n_observed = 0;  // decode steps that wait for a calibration
  uint32_t seed = 1;
};

// The same options give the same sample on every machine.
Sample make_sample(const SampleOptions& options = {});

std::vector<std::byte> to_bytes(const Sample& sample);

// Adds a test failure unless both hold the same, rows byte for byte.
void expect_same(const Sample& expected, const CtzFile& found);

}  // namespace ctxzip
