#include "cli/inspect_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "cli/byte_size.h"
#include "cli/human.h"
#include "cli/json_output.h"
#include "cli/recall_output.h"
#include "cli/zip_report.h"

namespace ctxzip::cli {
namespace {

constexpr int kBarWidth = 30;

std::string row(const char* label, const std::string& value) {
  return fmt::format("  {:<11} {}\n", label, value);
}

std::span<const int64_t> heads_of(const HeadCounts& heads, int64_t layer) {
  return std::span(heads.kept)
      .subspan(static_cast<size_t>(layer * heads.n_kv_head), static_cast<size_t>(heads.n_kv_head));
}

double share(int64_t kept, int64_t of) {
  return of > 0 ? static_cast<double>(kept) / static_cast<double>(of) : 1;
}

}  // namespace

std::string summary_table(const std::string& file, const FileInfo& info) {
  const ZipReport& report = info.report;
  std::string table = file + "\n";
  table +=
      row("file", fmt::format("{}, format {}", format_bytes(info.file_bytes), info.format_version));
  table += row("model", fmt::format("{} ({}, fingerprint {})", info.model_name, info.architecture,
                                    info.model_fingerprint));
  if (!info.recall)
    table += row("method", fmt::format("{}, {} allocation, {} reconstruction, chunks of {}",
                                       report.method, report.allocation, report.recon_attention,
                                       format_count(report.chunk_tokens)));
  table +=
      row("tokens", fmt::format("{} + {} of the prompt's head", format_count(report.context_tokens),
                                format_count(report.prefix_tokens)));
  table += row("pairs kept",
               fmt::format("{} of {} ({})", format_count(report.pairs_kept),
                           format_count(report.pairs_total), format_percent(kept_ratio(report))));
  table += row("KV cache", describe_cache(report) + fmt::format(", {} rows", report.row_type));
  table += row("loss", describe_loss(report, info.recall.has_value()));
  if (info.recall) table += recall_lines(*info.recall);
  return table;
}

std::string layers_table(const FileInfo& info) {
  const HeadCounts& heads = info.heads;
  const int64_t n_rows = info.report.context_tokens;
  std::string table = fmt::format("{:>5}  {:>6}  {:<{}}  {:>9} {:>9}\n", "layer", "kept", "",
                                  kBarWidth, "least", "most");
  for (size_t at = 0; at < heads.layers.size(); ++at) {
    const auto kept = heads_of(heads, static_cast<int64_t>(at));
    int64_t sum = 0;
    for (const int64_t n : kept) sum += n;
    const auto [least, most] = std::minmax_element(kept.begin(), kept.end());
    const double of_layer = share(sum, n_rows * heads.n_kv_head);
    const std::string bar(static_cast<size_t>(of_layer * kBarWidth + 0.5), '#');
    table += fmt::format(
        "{:>5}  {:>6}  {:<{}}  {:>9} {:>9}\n", heads.layers[at], format_percent(of_layer), bar,
        kBarWidth, format_percent(share(*least, n_rows)), format_percent(share(*most, n_rows)));
  }
  return table;
}

std::string heads_table(const FileInfo& info) {
  const HeadCounts& heads = info.heads;
  std::string table = fmt::format("{:>5} ", "layer");
  for (int64_t head = 0; head < heads.n_kv_head; ++head) {
    table += fmt::format(" {:>6}", fmt::format("head {}", head));
  }
  table += '\n';
  for (size_t at = 0; at < heads.layers.size(); ++at) {
    table += fmt::format("{:>5} ", heads.layers[at]);
    for (const int64_t kept : heads_of(heads, static_cast<int64_t>(at))) {
      table += fmt::format(" {:>6}", format_percent(share(kept, info.report.context_tokens)));
    }
    table += '\n';
  }
  return table;
}

}  // namespace ctxzip::cli
