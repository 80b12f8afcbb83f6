#include "ctxzip/context.h"

#include <algorithm>
#include <istream>
#include <iterator>
#include <ostream>

#include "core/fail.h"
#include "engine/context_state.h"

namespace ctxzip {
namespace {

std::vector<double> kept_share_of(const KeepSet& kept) {
  std::vector<double> share(static_cast<size_t>(kept.n_context));
  const double one = 1.0 / static_cast<double>(kept.n_layer * kept.n_kv_head);
  for (const auto& rows : kept.rows) {
    for (const uint32_t row : rows) share[row] += one;
  }
  return share;
}

HeadCounts head_counts_of(const ContextRows& rows) {
  const KeepSet& kept = rows.global.kept;
  HeadCounts counts{.layers = rows.layers.global_layers(), .n_kv_head = kept.n_kv_head, .kept = {}};
  for (const auto& rows : kept.rows) counts.kept.push_back(static_cast<int64_t>(rows.size()));
  return counts;
}

Context bind(const Model& model, CtzFile file, const std::string& name) {
  if (const auto difference = first_difference(file.meta.model, model.state()->fingerprint)) {
    fail(ErrorKind::kMismatch, "{} was made with another model ('{}'): {}", name,
         file.meta.model_name, *difference);
  }
  const ZipReport report = describe_context(file.meta, file.rows);
  return Context(std::make_shared<const detail::ContextState>(
      detail::ContextState{model, std::move(file.meta), std::move(file.rows), report}));
}

}  // namespace

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
  write_file_atomically(path,
                        [&](const WriteFn& sink) { write_ctz(state_->meta, state_->rows, sink); });
}

std::vector<std::byte> Context::save() const {
  std::vector<std::byte> bytes;
  bytes.reserve(static_cast<size_t>(ctz_bytes(state_->meta, state_->rows)));
  write_ctz(state_->meta, state_->rows, [&](std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

void Context::save(std::ostream& out) const {
  write_ctz(state_->meta, state_->rows, [&](std::span<const std::byte> part) {
    out.write(reinterpret_cast<const char*>(part.data()),
              static_cast<std::streamsize>(part.size()));
    if (!out) fail(ErrorKind::kIo, "writing a zipped context to a stream failed");
  });
}

const ZipReport& Context::report() const { return state_->report; }
HeadCounts Context::head_counts() const { return head_counts_of(state_->rows); }
const Model& Context::model() const { return state_->model; }
const std::vector<Token>& Context::tokens() const { return state_->meta.context_tokens; }
std::string Context::text() const { return state_->model.detokenize(state_->meta.context_tokens); }
std::vector<double> Context::kept_share() const { return kept_share_of(state_->rows.global.kept); }

FileInfo inspect_file(const std::string& path) {
  const CtzFile file = read_ctz(path);
  return {.report = describe_context(file.meta, file.rows),
          .file_bytes = file.file_bytes,
          .format_version = file.version,
          .model_name = file.meta.model_name,
          .architecture = file.meta.model.architecture,
          .model_fingerprint = file.meta.model.digest(),
          .heads = head_counts_of(file.rows),
          .kept_share = kept_share_of(file.rows.global.kept)};
}

KeptMap read_kept_map(const std::string& path, int64_t most_parts) {
  if (most_parts < 1) {
    fail(ErrorKind::kInvalidArgument, "{} parts of the context: expected at least 1", most_parts);
  }
  const CtzFile file = read_ctz(path);
  const KeepSet& kept = file.rows.global.kept;
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
