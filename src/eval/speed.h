// How fast a model prefills, scores and decodes, beside llama.cpp in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ctxzip/model.h"
#include "ctxzip/progress.h"
#include "ctxzip/zip.h"

namespace ctxzip::eval {

struct SpeedOptions {
  std::vector<int64_t> context_tokens = {2048};
  std::vector<double> ratios = {1.0, 0.3};
  int n_rounds = 3;            // interleaved with llama.cpp's; medians count
  int64_t decode_tokens = 24;  // timed in each round
  int64_t n_sessions = 4;      // that decode side by side; 1: not measured
  bool peer = true;            // measure llama.cpp too (f16 cache, flash attention)
  // Prefills the first tokens only, on both sides, and repeats their rows up to the length wanted:
  // decoding takes as long as after them all. Pairs are dropped at random.
  bool decode_only = false;
  std::string text = {};  // repeated to the length wanted; empty: a built-in one
  ZipOptions zip = {};    // budget and text-independent options; the budget is ignored
};

// One context length at one ratio.
struct SpeedRow {
  int64_t context_tokens = 0;
  double ratio = 1;
  std::string kv_type;
  std::optional<double> prefill_tokens_per_s = {};  // this and the next two: with a whole prefill
  std::optional<double> prefill_vs_llama_cpp = {};
  std::optional<double> score_s = {};
  double decode_tokens_per_s = 0;
  std::optional<double> decode_vs_llama_cpp = {};
  std::optional<double> group_tokens_per_s = {};  // of all sessions side by side
  int64_t kv_bytes = 0;
  int64_t peak_rss_bytes = 0;  // of the process so far
  std::optional<double> delta_nll = {};
};

// llama.cpp at one context length.
struct PeerRow {
  int64_t context_tokens = 0;
  std::optional<double> prefill_tokens_per_s = {};
  double decode_tokens_per_s = 0;
};

struct SpeedReport {
  std::vector<SpeedRow> rows;  // (context length, ratio)
  std::vector<PeerRow> peer;   // (context length), empty without the peer
};

struct SpeedHooks {
  std::function<void(const std::string& what)> status = {};
  const CancelToken* cancel = nullptr;
};

// Throws Error as zip() does; kInvalidArgument for lengths and ratios out of range or missing;
// kUnsupported for decode_only where a layer does not keep every row.
SpeedReport measure_speed(const Model& model, const SpeedOptions& options, const SpeedHooks& hooks);

}  // namespace ctxzip::eval
