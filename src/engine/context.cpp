#include "ctxzip/context.h"

#include <algorithm>
#include <istream>
#include <iterator>
#include <ostream>

#include "core/fail.h"
#include "engine/context_state.h"
#include "recall/recall_cache.h"

namespace ctxzip {
namespace {

// Context rows that are read without recall: all that are there, or under VestigeKV kept rows and
// the tail.
KeepSet rows_read(const CtzMeta& meta, const ContextRows& rows) {
  if (meta.recall == nullptr) return rows.global.kept;
  KeepSet read = rows.global.kept;
  for (size_t layer = 0; layer < read.rows.size(); ++layer) {
    const RecallState& state = meta.recall->layers[layer];
    std::vector<uint32_t>& list = read.rows[layer];
    list.clear();
    const auto add = [&](int64_t row) {
      if (row >= rows.global.n_prefix)
        list.push_back(static_cast<uint32_t>(row - rows.global.n_prefix));
    };
    for (const uint32_t row : state.kept) add(row);
    for (int64_t row = state.n_closed; row < state.n_rows(); ++row) add(row);
  }
  return read;
}

std::vector<double> kept_share_of(const KeepSet& kept) {
  std::vector<double> share(static_cast<size_t>(kept.n_context));
  const double one = 1.0 / static_cast<double>(kept.n_layer * kept.n_kv_head);
  for (const auto& rows : kept.rows) {
    for (const uint32_t row : rows) share[row] += one;
  }
  return share;
}

HeadCounts head_counts_of(const LayerMap& layers, const KeepSet& kept) {
  HeadCounts counts{.layers = layers.global_layers(), .n_kv_head = kept.n_kv_head, .kept = {}};
  for (const auto& rows : kept.rows) counts.kept.push_back(static_cast<int64_t>(rows.size()));
  return counts;
}

Context bind(const Model& model, CtzFile file, const std::string& name) {
  if (const auto difference = first_difference(file.meta.model, model.state()->fingerprint)) {
    fail(ErrorKind::kMismatch, "{} was made with another model ('{}'): {}", name,
         file.meta.model_name, *difference);
  }
  const ZipReport report = describe_context(file.meta, file.rows);
  std::shared_ptr<const StreamOptions> stream;
  if (const auto& recall = file.meta.recall) {
    stream = std::make_shared<const StreamOptions>(
        StreamOptions{.policy = recall->options, .control = recall->control});
  }
  return Context(std::make_shared<const detail::ContextState>(detail::ContextState{
      model, std::move(file.meta), std::move(file.rows), report, std::move(stream)}));
}

void check_text(const detail::ContextState& context) {
  if (!context.meta.context_tokens.empty()) return;
  fail(ErrorKind::kInvalidArgument, "this context has no text: there is nothing to save");
}

}  // namespace

std::optional<RecallReport> describe_recall(const CtzMeta& meta, const ContextRows& rows) {
  if (meta.recall == nullptr) return std::nullopt;
  const RecallOptions& options = meta.recall->options;
  const MlaShape shape = recall_shape(meta.model);
  const auto row_bytes = static_cast<int64_t>(rows.global.shape.row_size());
  RecallReport report;
  report.target = options.recall ? options.target.recall : 0;
  report.sound = options.sound;
  for (size_t at = 0; at < meta.recall->layers.size(); ++at) {
    const RecallState& state = meta.recall->layers[at];
    const auto n_kept = static_cast<int64_t>(state.kept.size());
    report.layers.push_back({.layer = rows.layers.global_layers()[at],
                             .kept = n_kept,
                             .archived = state.n_closed - n_kept,
                             .tail = state.n_tail,
                             .calibration = state.calibration.state});
    report.resident_bytes += (n_kept + state.n_tail) * row_bytes +
                             state.n_closed * entry_bytes(shape, sketch_rank(shape, options));
    report.archive_bytes += state.n_closed * row_bytes;
    const int64_t n_read = n_kept + state.n_tail;
    report.effective_ratio =
        n_read > 0 ? static_cast<double>(state.n_rows()) / static_cast<double>(n_read) : 1;
  }
  return report;
}

ZipReport describe_context(const CtzMeta& meta, const ContextRows& rows) {
  const ZippedRows& global = rows.global;
  ZipReport report;
  report.context_tokens = global.kept.n_context;
  report.prefix_tokens = global.n_prefix;
  report.pairs_total = global.kept.pairs_total();
  report.pairs_kept = global.kept.pairs_kept();
  const int64_t heads = global.shape.n_layer * global.shape.n_kv_head;
  report.kv_bytes_window = rows.local.kv_bytes();
  KvShape whole = global.shape;
  if (is_quantised(whole.row_type)) whole.row_type = RowType::kF16;
  report.kv_bytes_full =
      rows.n_positions() * heads * static_cast<int64_t>(whole.pair_size()) + report.kv_bytes_window;
  report.kv_bytes_kept = rows.kv_bytes();
  report.method = meta.method;
  report.allocation = meta.allocation;
  report.recon_attention = meta.recon_attention;
  report.schedule = meta.schedule;
  report.chunk_tokens = meta.chunk_tokens;
  report.row_type = row_type_name(global.shape.row_type);
  report.delta_nll = meta.delta_nll;
  report.delta_nll_probe = meta.delta_nll_probe;
  return report;
}

Context Context::open(const Model& model, const std::string& path) {
  return bind(model, read_ctz(path), path);
}

Context Context::open(const Model& model, std::span<const std::byte> bytes) {
  return bind(model, read_ctz(std::vector<std::byte>(bytes.begin(), bytes.end())), "the buffer");
}

Context Context::open(const Model& model, std::istream& in) {
  std::vector<std::byte> bytes;
  char block[1 << 16];
  while (in.read(block, sizeof(block)), in.gcount() > 0) {
    const auto* data = reinterpret_cast<const std::byte*>(block);
    bytes.insert(bytes.end(), data, data + in.gcount());
  }
  if (in.bad()) fail(ErrorKind::kIo, "reading a zipped context from a stream failed");
  return bind(model, read_ctz(std::move(bytes)), "the stream");
}

void Context::save(const std::string& path) const {
  check_text(*state_);
  write_file_atomically(path,
                        [&](const WriteFn& sink) { write_ctz(state_->meta, state_->rows, sink); });
}

std::vector<std::byte> Context::save() const {
  check_text(*state_);
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<size_t>(ctz_bytes(state_->meta, state_->rows)));
  write_ctz(state_->meta, state_->rows, [&](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

void Context::save(std::ostream& out) const {
  check_text(*state_);
  write_ctz(state_->meta, state_->rows, [&](std::span<const std::byte> part) {
    out.write(reinterpret_cast<const char*>(part.data()),
              static_cast<std::streamsize>(part.size()));
    if (!out) fail(ErrorKind::kIo, "writing a zipped context to a stream failed");
  });
}

const ZipReport& Context::report() const { return state_->report; }
HeadCounts Context::head_counts() const {
  return head_counts_of(state_->rows.layers, rows_read(state_->meta, state_->rows));
}
const Model& Context::model() const { return state_->model; }
const std::vector<Token>& Context::tokens() const { return state_->meta.context_tokens; }
std::string Context::text() const { return state_->model.detokenize(state_->meta.context_tokens); }
std::optional<RecallReport> Context::recall_report() const {
  return describe_recall(state_->meta, state_->rows);
}
std::vector<double> Context::kept_share() const {
  return kept_share_of(rows_read(state_->meta, state_->rows));
}

FileInfo inspect_file(const std::string& path) {
  const CtzFile file = read_ctz(path);
  const KeepSet kept = rows_read(file.meta, file.rows);
  return {.report = describe_context(file.meta, file.rows),
          .file_bytes = file.file_bytes,
          .format_version = file.version,
          .model_name = file.meta.model_name,
          .architecture = file.meta.model.architecture,
          .model_fingerprint = file.meta.model.digest(),
          .heads = head_counts_of(file.rows.layers, kept),
          .kept_share = kept_share_of(kept),
          .recall = describe_recall(file.meta, file.rows)};
}

KeptMap read_kept_map(const std::string& path, int64_t most_parts) {
  if (most_parts < 1) {
    fail(ErrorKind::kInvalidArgument, "{} parts of the context: expected at least 1", most_parts);
  }
  const CtzFile file = read_ctz(path);
  const KeepSet kept = rows_read(file.meta, file.rows);
  KeptMap map{.n_head = kept.n_layer * kept.n_kv_head,
              .n_part = std::min(most_parts, kept.n_context)};
  std::vector<float> size(static_cast<size_t>(map.n_part));
  const auto part_of = [&](int64_t row) {
    return static_cast<size_t>(row * map.n_part / kept.n_context);
  };
  for (int64_t row = 0; row < kept.n_context; ++row) size[part_of(row)] += 1;
  map.share.resize(static_cast<size_t>(map.n_head * map.n_part));
  for (int64_t head = 0; head < map.n_head; ++head) {
    float* share = map.share.data() + head * map.n_part;
    for (const uint32_t row : kept.rows[static_cast<size_t>(head)]) {
      share[part_of(row)] += 1 / size[part_of(row)];
    }
  }
  return map;
}

}  // namespace ctxzip
