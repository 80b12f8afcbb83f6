// Head scores that hold for a model whatever the text: measured once, they replace the scoring pass
// of every later zip (arXiv 2505.23416, section 4.3).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ctxzip/export.h"
#include "ctxzip/model.h"
#include "ctxzip/zip.h"

namespace ctxzip {

struct HeadScores {
  std::string model_name;
  std::string model_fingerprint;  // 16 hex digits
  std::vector<int64_t> layers;    // numbers of the layers that can be evicted, ascending
  int64_t n_kv_head = 0;
  int64_t n_samples = 0;
  int64_t sample_tokens = 0;  // of all samples
  // (layer, kv_head): the largest KVzip score of any of the head's pairs in any sample.
  std::vector<float> values;
};

// How much a sample loses when head scores decide, nats per token (see ZipReport).
struct HeadLoss {
  double ratio = 0;
  double delta_nll = 0;
  double delta_nll_probe = 0;
};

// Losses of one method at several ratios, and the smallest ratio whose losses, and those of every
// larger one, are within kHeadLossBound; 1 if none is.
struct HeadTrial {
  Method method = Method::kHeadsDuo;
  std::vector<HeadLoss> losses;
  double recommended_ratio = 1;
};
constexpr double kHeadLossBound = 0.05;

struct HeadMeasurement {
  HeadScores scores;
  std::vector<HeadTrial> trials;  // on the last sample; both structures
};

// Prefills and scores each text like zip(), with its options as far as they concern scoring; then
// tries ratios on the last text. Throws as zip().
CTXZIP_API HeadMeasurement measure_heads(const Model& model, std::span<const std::string> texts,
                                         const ZipOptions& options = {});

// JSON, a text of a few kilobytes; docs/methods.md lists the fields.
CTXZIP_API std::string heads_to_json(const HeadScores& heads);
// Throws Error{kCorruptFile} naming what is wrong.
CTXZIP_API HeadScores heads_from_json(std::string_view json);

}  // namespace ctxzip
