#include "cli/zip_report.h"

#include <fmt/format.h>

#include "cli/byte_size.h"
#include "cli/human.h"
#include "cli/recall_output.h"

namespace ctxzip::cli {
namespace {

std::string row(const char* label, const std::string& value) {
  return fmt::format("  {:<11} {}\n", label, value);
}

}  // namespace

Json zip_json(const ZipResult& result) {
  const ZipReport& report = result.report;
  Json json = {{"file", result.file},
               {"file_bytes", result.file_bytes},
               {"model", result.model_name},
               {"model_path", result.model_path},
               {"model_fingerprint", result.model_fingerprint}};
  json.update(report_json(report));
  json.update(Json{{"prefill_s", report.prefill_s},
                   {"score_s", report.score_s},
                   {"check_s", report.check_s},
                   {"compact_s", report.compact_s},
                   {"peak_kv_bytes", report.peak_kv_bytes},
                   {"peak_rss_bytes", report.peak_rss_bytes},
                   {"notices", result.notices}});
  if (result.recall) json["recall"] = recall_json(*result.recall);
  return json;
}

std::string describe_loss(const ZipReport& report, bool reads_few) {
  if (reads_few) {
    return "nothing was evicted; what reading few of the rows loses was not measured";
  }
  const bool rounded = report.row_type == "q8" || report.row_type == "q4";
  const bool whole = report.pairs_kept == report.pairs_total;
  if (whole && !rounded) return "lossless: nothing was evicted";
  const std::string what =
      whole ? fmt::format("nothing was evicted, rows are {}", report.row_type) : "lossy";
  if (!report.delta_nll) {
    return what + (whole ? "; what that loses was not measured" : "; how much was not measured");
  }
  std::string text = fmt::format("{}: delta_nll {}", what, format_nll(*report.delta_nll));
  if (report.delta_nll_probe) {
    text += fmt::format(", delta_nll_probe {}", format_nll(*report.delta_nll_probe));
  }
  return text + " nats/token";
}

std::string describe_cache(const ZipReport& report) {
  std::string text = fmt::format("{} -> {}", format_bytes(report.kv_bytes_full),
                                 format_bytes(report.kv_bytes_kept));
  if (report.kv_bytes_window > 0) {
    text += fmt::format(", {} of it sliding windows (not evicted)",
                        format_bytes(report.kv_bytes_window));
  }
  return text;
}

std::string zip_table(const ZipResult& result) {
  const ZipReport& report = result.report;
  std::string table = result.file + "\n";
  table += row("model",
               result.model_label + (result.default_model ? " (the default; -m for another)" : ""));
  table +=
      row("tokens", fmt::format("{} + {} of the prompt's head", format_count(report.context_tokens),
                                format_count(report.prefix_tokens)));
  table += row("pairs kept",
               fmt::format("{} of {} ({}), {}, {}", format_count(report.pairs_kept),
                           format_count(report.pairs_total), format_percent(kept_ratio(report)),
                           report.method, report.allocation));
  table += row("KV cache", describe_cache(report));
  if (result.recall) table += recall_lines(*result.recall);
  table += row("file", format_bytes(result.file_bytes));
  table += row("loss", describe_loss(report, result.recall.has_value()));
  table +=
      row("time", fmt::format("prefill {}, score {}, check {}, compact {}",
                              format_seconds(report.prefill_s), format_seconds(report.score_s),
                              format_seconds(report.check_s), format_seconds(report.compact_s)));
  table += row("peak memory", format_bytes(report.peak_rss_bytes) + ", the model included");
  return table;
}

}  // namespace ctxzip::cli
