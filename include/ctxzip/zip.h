// Compressing a text into a Context: prefill, score, select, compact.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ctxzip/context.h"
#include "ctxzip/export.h"
#include "ctxzip/method.h"
#include "ctxzip/model.h"
#include "ctxzip/progress.h"

namespace ctxzip {

// Whose scores compete for the budget: all heads of all layers, the heads of one layer, or each
// head for itself; or as the method's own authors share it.
enum class Allocation { kGlobal, kLayer, kUniform, kNative };
CTXZIP_API std::string_view allocation_name(Allocation allocation);

// What a reconstruction pass attends to: the whole cache (the paper), or prefix + chunk + itself.
enum class ReconAttention { kFull, kLocal };

// Two-pass: the whole text is prefilled, then scored, then cut. Streaming: chunk by chunk, each
// prefilled over what is left of those before it; the full cache never exists.
enum class Schedule { kTwoPass, kStreaming };

// How kept rows are stored. 8 and 4 bits: smaller files and faster answers, a little more loss.
enum class KvType { kF16, kQ8, kQ4 };

// Exactly one budget is set; none means ratio 0.3.
struct Budget {
  std::optional<double> ratio = {};         // share of the evictable pairs, 0 < ratio <= 1
  std::optional<int64_t> keep_tokens = {};  // worth of whole tokens
  std::optional<int64_t> size_bytes = {};   // KV rows on disk and in memory, prefix included
  std::optional<double> quality = {};       // largest allowed delta_nll and
                                            // delta_nll_probe, nats per token
};

struct HeadScores;  // ctxzip/heads.h

struct ZipOptions {
  Budget budget = {};
  Method method = Method::kKvzip;
  std::shared_ptr<const HeadScores> heads = {};  // Method::kHeadsDuo, kHeadsDrop
  Allocation allocation = Allocation::kGlobal;
  Schedule schedule = Schedule::kTwoPass;  // kStreaming: no quality budget, local attention
  ReconAttention recon_attention = ReconAttention::kLocal;  // kFull: the paper's
  KvType kv = KvType::kF16;
  int64_t chunk_tokens = 2048;             // at least 256 unless the context is shorter
  std::optional<std::string> system = {};  // system prompt; the template's own default otherwise
  bool allow_long = false;                 // go past the trained length
  bool self_check = true;
  uint64_t seed = 0;           // Method::kRandom
  int64_t batch_tokens = 512;  // prefill batch
  ProgressFn progress = {};
  LogFn notice = {};  // short contexts, smaller chunks, ...
  const CancelToken* cancel = nullptr;
};

struct ZipEstimate {
  int64_t context_tokens = 0;
  int64_t prefix_tokens = 0;
  int64_t kv_bytes_full = 0;
  int64_t peak_bytes = 0;  // anonymous memory on top of the loaded model
  double flops = 0;        // arithmetic of prefill and scoring together
};

// Throws as zip() does for texts that do not fit.
CTXZIP_API ZipEstimate estimate_zip(const Model& model, std::string_view text,
                                    const ZipOptions& options = {});

// Throws Error: kInvalidArgument (options), kTooLong, kOutOfMemory, kCancelled. Invalid UTF-8 in
// `text` is replaced by U+FFFD with a notice. An empty text is refused.
CTXZIP_API Context zip(const Model& model, std::string_view text, const ZipOptions& options = {});

}  // namespace ctxzip
