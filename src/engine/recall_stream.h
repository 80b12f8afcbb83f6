// A sequence that grows under VestigeKV: tokens go in, logits come out, nothing is forgotten.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cache/context_rows.h"
#include "ctxzip/stream.h"
#include "engine/graph_runner.h"
#include "recall/audit.h"
#include "recall/recall_attention.h"

namespace ctxzip {

// Throws Error{kUnsupported} for a model without latent attention, or with rotated rows unless
// this is a control: what was found, what is expected, what to do instead.
void require_recall_model(const detail::ModelState& model, const StreamOptions& options);

// Where a stream stands: to turn back to.
struct StreamMark {
  std::vector<RecallState> layers;  // of the MLA layers
  RecurrentStates states;

  int64_t n_rows() const { return layers[0].n_rows(); }
};

// Not thread-safe. A step that fails or is cancelled leaves no trace.
class RecallStream {
 public:
  // Empty. Throws Error: kUnsupported, kInvalidArgument, kIo (the archive), kOutOfMemory.
  RecallStream(const Model& model, const StreamOptions& options);
  // After what was stored: rows of the MLA layers and a mark. Throws kTooLong besides.
  RecallStream(const Model& model, const StreamOptions& options, const ContextRows& rows,
               const std::vector<RecallState>& layers);

  int64_t n_rows() const { return seam_.cache(0).n_rows(); }
  int64_t capacity() const { return seam_.cache(0).capacity(); }

  // Tokens that attend to everything, exactly, in batches; logits (n_vocab) after the last one,
  // valid until the next call. `on_rows` is called with the tokens done. Throws Error: kTooLong,
  // kCancelled, kOutOfMemory, kIo.
  std::span<const float> prefill(std::span<const Token> tokens, const CancelToken* cancel,
                                 const std::function<void(int64_t)>& on_rows = {});
  // One token under the policy.
  std::span<const float> decode(Token token, const CancelToken* cancel = nullptr);

  // Attends to everything in later decode steps, whatever the policy: for comparison.
  void set_dense(bool dense) { dense_ = dense; }
  // Closes the open block if it has 64 rows.
  void close_now();
  // Finishes what calibration is under way, as far as it goes without further queries.
  void settle();

  StreamMark mark() const;
  void rewind(const StreamMark& mark);
  // A copy of all rows of the MLA layers, in order, with the states.
  ContextRows copy_rows(int64_t n_prefix) const;

  RecallReport report() const;
  const RecallAttention& layers() const { return seam_; }
  const RecurrentStates& states() const { return states_.now(); }

 private:
  std::span<const float> run(std::span<const Token> tokens, bool wants_logits, bool exact,
                             const CancelToken* cancel);
  void after_step();
  void audit();
  void maintain();
  // Lemma 3 for the last step, the worst head of all layers; absent when rows were closed since.
  std::optional<double> excluded_mass_limit() const;
  const detail::ModelState& state() const { return *model_.state(); }

  Model model_;
  StreamOptions options_;
  RecallAttention seam_;
  StateTrack states_;
  GraphRunner batch_runner_;
  GraphRunner decode_runner_;  // keeps its graph from token to token
  bool dense_ = false;
  bool broken_ = false;      // rows of some layers could not be stored
  bool step_holds_ = false;  // the last step's partition is still the present one
  int64_t n_steps_ = 0;
  StepTotals totals_;  // of all layers
  int64_t bytes_dense_ = 0;
  std::optional<double> excluded_before_;  // of the last step before the stream was turned back
  double longest_pause_s_ = 0;
  RecallAudit audit_;
  std::vector<AuditCounts> audited_;  // (layer), since its last calibration
  // (layer): the z of the last calibration that an audit refuted, wherever the stream turns back
  // to.
  std::vector<std::optional<double>> refuted_;
};

// The nats of each token of `tokens` given what came before, the first given the logits `before`;
// they are decoded one by one (the last one is not fed).
std::vector<double> forced_nll(RecallStream& stream, std::span<const float> before,
                               std::span<const Token> tokens, const CancelToken* cancel = nullptr);

}  // namespace ctxzip
