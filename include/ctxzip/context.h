// A zipped context: what is left of a prefilled text, immutable and shareable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ctxzip/export.h"
#include "ctxzip/model.h"
#include "ctxzip/recall.h"

namespace ctxzip {

// Everything a zip reports and a file stores. Pairs are (layer, kv_head, row) of the evictable
// context: layers with a sliding window have none. Bytes include the protected prefix and the
// windows.
struct ZipReport {
  int64_t context_tokens = 0;
  int64_t prefix_tokens = 0;
  int64_t pairs_total = 0;
  int64_t pairs_kept = 0;
  int64_t kv_bytes_full = 0;
  int64_t kv_bytes_kept = 0;
  int64_t kv_bytes_window = 0;  // rows of sliding-window layers, part of both
  std::string method;           // method_name(): "kvzip", "snapkv", ...
  std::string allocation;       // "global", "layer", "uniform", "native"
  std::string recon_attention;  // "full", "local"
  std::string schedule;         // "two-pass", "streaming"
  int64_t chunk_tokens = 0;
  std::string row_type;  // "f16", "q8", "q4" (and "f32" in exactness tests)
  // Change of the teacher-forced reconstruction loss, nats per token; the probe is held out from
  // scoring. Absent when the self-check was switched off or the context is too short.
  std::optional<double> delta_nll;
  std::optional<double> delta_nll_probe;
  // Of this run; not stored in files.
  double prefill_s = 0;
  double score_s = 0;
  double check_s = 0;
  double compact_s = 0;
  int64_t peak_kv_bytes = 0;   // rows of layers without a window that were held at once
  int64_t peak_rss_bytes = 0;  // of the process, mapped weights included
};

// Rows kept in each head of the layers that can be evicted, prefix excluded: (layer, kv_head).
struct HeadCounts {
  std::vector<int64_t> layers;  // their numbers in the model
  int64_t n_kv_head = 0;
  std::vector<int64_t> kept;
};

namespace detail {
struct ContextState;
}

// A handle to immutable data; copies are cheap and share it. Safe to read from several threads.
class CTXZIP_API Context {
 public:
  // Maps the file, verifies every checksum and checks that `model` is the one it was made with.
  // Throws Error: kNotFound, kIo, kCorruptFile, kUnsupported (version), kMismatch (names the
  // field).
  static Context open(const Model& model, const std::string& path);
  // The same from memory; `bytes` are copied.
  static Context open(const Model& model, std::span<const std::byte> bytes);
  static Context open(const Model& model, std::istream& in);

  // Written to a temporary beside `path`, synced and renamed: on failure the old file is untouched.
  void save(const std::string& path) const;
  std::vector<std::byte> save() const;
  void save(std::ostream& out) const;

  const ZipReport& report() const;
  HeadCounts head_counts() const;
  const Model& model() const;
  // The document's token ids, prefix excluded, and its text as the model tokenised it.
  const std::vector<Token>& tokens() const;
  std::string text() const;
  // For each context token the share of heads that kept it, 0..1.
  std::vector<double> kept_share() const;
  // Of a context under VestigeKV, which holds every row: which are read, and how far recall is
  // calibrated.
  std::optional<RecallReport> recall_report() const;

  const std::shared_ptr<const detail::ContextState>& state() const { return state_; }
  explicit Context(std::shared_ptr<const detail::ContextState> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const detail::ContextState> state_;
};

// What a file says of itself, without a model: verified as in Context::open.
struct FileInfo {
  ZipReport report;
  int64_t file_bytes = 0;
  uint32_t format_version = 0;
  std::string model_name;
  std::string architecture;
  std::string model_fingerprint;  // 16 hex digits
  HeadCounts heads;
  std::vector<double> kept_share;  // per context token
  std::optional<RecallReport> recall;
};
CTXZIP_API FileInfo inspect_file(const std::string& path);

// Which parts of a text each head kept.
struct KeptMap {
  int64_t n_head = 0;  // evictable layers x KV heads, in the order of HeadCounts
  int64_t n_part = 0;  // the context is cut into parts of equal length, give or take a token
  std::vector<float> share = {};  // (head, part): of the part's rows, 0..1

  float at(int64_t head, int64_t part) const {
    return share[static_cast<size_t>(head * n_part + part)];
  }
};
// At most `most_parts` (at least 1) parts, and no more than the context has tokens. Throws as
// inspect_file, and kInvalidArgument.
CTXZIP_API KeptMap read_kept_map(const std::string& path, int64_t most_parts);

}  // namespace ctxzip
