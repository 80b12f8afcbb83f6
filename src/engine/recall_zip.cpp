#include "engine/recall_zip.h"

#include <algorithm>

#include "core/fail.h"
#include "core/memory.h"
#include "core/stopwatch.h"
#include "engine/document_text.h"
#include "engine/finish.h"

namespace ctxzip {
namespace {

// Tokens at the end that calibrate: none of them closes a block, which would make the calibration
// stale at once.
int64_t calibration_tokens(const StreamOptions& options, int64_t n_tokens, int64_t n_context) {
  const RecallOptions& policy = options.policy;
  const int64_t n_shortest = options.close_now ? kMinClosedRows : policy.block_rows;
  if (!policy.recall || policy.sound || n_tokens < n_shortest) return 0;
  const int64_t wanted = std::min(options.calibration_tokens, n_context);
  if (!options.close_now) return std::min(wanted, n_tokens % policy.block_rows);
  // Rows too few to be closed before the calibrating ones come into the same block as those.
  const auto closes = [&](int64_t n) {
    const int64_t open = (n_tokens - n) % policy.block_rows;
    return (open < kMinClosedRows ? open : 0) + n >= policy.block_rows;
  };
  int64_t n = std::min(wanted, n_tokens - kMinClosedRows);
  while (n > 0 && closes(n)) --n;
  return n;
}

void check_length(const Model& model, const StreamOptions& options, int64_t n_tokens) {
  const int64_t n_train = model.state()->hp.n_ctx_train;
  if (options.allow_long || n_tokens <= std::max(n_train, options.capacity)) return;
  fail(ErrorKind::kTooLong,
       "the text has {} tokens with the prompt's head and the model is trained for {}: split the "
       "text, or allow going past the trained length (--allow-long)",
       n_tokens, n_train);
}

void check_same(const RecallOptions& stored, const RecallOptions& wanted) {
  const auto check = [](const char* what, auto is, auto asked) {
    if (is == asked) return;
    fail(ErrorKind::kInvalidArgument,
         "this context was made with {} of {}, but {} is asked for: zip the text anew for that",
         what, is, asked);
  };
  check("blocks", stored.block_rows, wanted.block_rows);
  check("slow bins", stored.bins_per_4096, wanted.bins_per_4096);
  check("a keep ratio", stored.keep_ratio, wanted.keep_ratio);
  check("sinks", stored.n_sinks, wanted.n_sinks);
  check("recent rows", stored.n_recent, wanted.n_recent);
  check("the window form", static_cast<int>(stored.window), static_cast<int>(wanted.window));
  check("a sketch rank", stored.sketch_rank, wanted.sketch_rank);
  check("a recall target", stored.target.recall, wanted.target.recall);
  check("a largest z", stored.z_max, wanted.z_max);
  check("calibration steps", stored.max_steps, wanted.max_steps);
}

}  // namespace

Context freeze(const RecallStream& stream, const Model& model, const PromptLayout& layout,
               const std::vector<Token>& context, const StreamOptions& options, double prefill_s) {
  const auto n_prefix = static_cast<int64_t>(layout.prefix.size());
  CHECK(stream.n_rows() == n_prefix + static_cast<int64_t>(context.size()));
  CtzMeta meta = describe_prompt(*model.state(), layout, context);
  meta.method = "vestige";
  meta.allocation = "layer";
  meta.recon_attention = "none";
  meta.schedule = "streaming";
  RecallOptions stored = options.policy;
  stored.archive_path.clear();
  meta.recall = std::make_shared<const RecallContext>(
      RecallContext{stored, options.control, stream.mark().layers});
  ContextRows rows = stream.copy_rows(n_prefix);
  ZipReport report = describe_context(meta, rows);
  report.prefill_s = prefill_s;
  report.peak_rss_bytes = resident_memory().peak_bytes;
  StreamOptions running = options;
  running.progress = {};
  running.notice = {};
  running.cancel = nullptr;
  return Context(std::make_shared<const detail::ContextState>(
      detail::ContextState{model, std::move(meta), std::move(rows), report,
                           std::make_shared<const StreamOptions>(std::move(running))}));
}

Context zip_stream(const Model& model, const PromptLayout& layout,
                   const std::vector<Token>& context, const StreamOptions& options) {
  require_recall_model(*model.state(), options);
  std::vector<Token> tokens = layout.prefix;
  tokens.insert(tokens.end(), context.begin(), context.end());
  const auto n_tokens = static_cast<int64_t>(tokens.size());
  check_length(model, options, n_tokens);
  StreamOptions sized = options;
  if (options.capacity > 0 || n_tokens > model.state()->hp.n_ctx_train) {
    sized.capacity = std::max(options.capacity, n_tokens);
  }
  RecallStream stream(model, sized);
  const int64_t n_decoded =
      calibration_tokens(options, n_tokens, static_cast<int64_t>(context.size()));
  double seconds = 0;
  {
    const Stopwatch watch(seconds);
    const auto progress = [&](int64_t done) {
      if (options.progress) options.progress(Stage::kPrefill, done, n_tokens);
    };
    const auto n_batched = static_cast<size_t>(n_tokens - n_decoded);
    stream.prefill(std::span(tokens).first(n_batched), options.cancel, progress);
    if (options.close_now) stream.close_now();
    for (size_t at = n_batched; at < tokens.size(); ++at) {
      stream.decode(tokens[at], options.cancel);
      progress(static_cast<int64_t>(at + 1));
    }
    stream.settle();
  }
  return freeze(stream, model, layout, context, options, seconds);
}

Context zip_stream(const Model& model, std::string_view text, const StreamOptions& options) {
  const DocumentText document = normalise_document(text);
  if (document.n_replaced > 0 && options.notice) {
    options.notice(
        LogLevel::kWarning,
        fmt::format("{} invalid UTF-8 sequences were replaced by U+FFFD", document.n_replaced));
  }
  if (document.text.empty())
    fail(ErrorKind::kInvalidArgument, "the text is empty: there is nothing to zip");
  const Tokenizer& tokenizer = model.state()->tokenizer;
  return zip_stream(model, tokenizer.layout(options.system, /*think=*/false),
                    tokenizer.encode_plain(document.text), options);
}

Context start_stream(const Model& model, const StreamOptions& options) {
  if (!model.state()->tokenizer.has_text()) {
    fail(ErrorKind::kUnsupported, "{}: the model has no tokenizer: there is nobody to talk to",
         model.info().path);
  }
  PromptLayout layout = model.state()->tokenizer.layout(options.system, /*think=*/false);
  layout.question.clear();  // it separates a document from what is asked
  return zip_stream(model, layout, {}, options);
}

bool is_stream(const Context& context) { return context.state()->stream != nullptr; }

StreamOptions stream_options(const Context& context) {
  if (!is_stream(context)) {
    fail(ErrorKind::kInvalidArgument,
         "this context is not under VestigeKV: make it with zip --policy vestige");
  }
  return *context.state()->stream;
}

Context with_stream_options(const Context& context, const StreamOptions& options) {
  check_same(stream_options(context).policy, options.policy);
  auto state = std::make_shared<detail::ContextState>(*context.state());
  state->stream = std::make_shared<const StreamOptions>(options);
  return Context(std::move(state));
}

}  // namespace ctxzip
