#include "cli/recall_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/byte_size.h"
#include "cli/human.h"
#include "core/memory.h"

namespace ctxzip::cli {
namespace {

double share(int64_t part, int64_t of) {
  return of > 0 ? static_cast<double>(part) / static_cast<double>(of) : 0;
}

std::string row(const char* label, const std::string& value) {
  return fmt::format("  {:<11} {}\n", label, value);
}

std::string describe(const CalibrationState& state) {
  const auto notes = note_texts(state.notes);
  std::string text = fmt::format("{}, z {:.2f} of {} hard queries in {} steps",
                                 phase_name(state.phase), state.z, state.n_hard, state.n_steps);
  if (!notes.empty()) text += fmt::format(" ({})", fmt::join(notes, "; "));
  return text + (state.holds() ? "" : "; the target is not promised");
}

std::string describe_target(const RecallReport& report) {
  if (report.target == 0) return "off";
  if (report.sound) return "sound: no row that would win is missed";
  return fmt::format("target {:g}", report.target);
}

std::string describe_audit(const RecallAudit& audit) {
  return fmt::format("{} of {} best rows found ({:.3f} to {:.3f} at 95%), {} calibrations anew",
                     format_count(audit.found), format_count(audit.queries), audit.lower,
                     audit.upper, audit.recalibrations);
}

std::string step_lines(const RecallReport& report) {
  std::string lines =
      row("steps", fmt::format("{} tokens, {} rows fired, {} fetched; {} of layer steps fetched",
                               format_count(report.steps), format_count(report.fired_rows),
                               format_count(report.fetched_rows),
                               format_percent(share(report.triggered, report.layer_steps))));
  lines += row("read", fmt::format("{} of {} ({})", format_bytes(report.bytes_read),
                                   format_bytes(report.bytes_dense),
                                   format_percent(share(report.bytes_read, report.bytes_dense))));
  if (report.dense + report.overflowed > 0) {
    lines +=
        row("read whole", fmt::format("{} layer steps in short contexts, {} overflows",
                                      format_count(report.dense), format_count(report.overflowed)));
  }
  if (report.excluded_mass_limit) {
    const double limit = *report.excluded_mass_limit;
    lines += row("left out", limit >= 1 ? "at most 1 of the mass (vacuous)"
                                        : fmt::format("at most {:.2g} of the mass", limit));
  }
  lines += row("pause", fmt::format("{:.3f} s at most between two steps", report.longest_pause_s));
  return lines;
}

Json calibration_json(const CalibrationState& state) {
  return {{"phase", phase_name(state.phase)}, {"holds", state.holds()},
          {"notes", note_texts(state.notes)}, {"z", state.z},
          {"hard_queries", state.n_hard},     {"steps", state.n_steps},
          {"gated_heads", state.n_gated}};
}

}  // namespace

std::string recall_lines(const RecallReport& report) {
  if (report.layers.empty()) return "";
  const RecallLayerReport& first = report.layers.front();
  std::string lines = row("policy", "vestige, recall " + describe_target(report));
  lines += row("rows",
               fmt::format("{} kept, {} archived, {} in the tail ({} layers): {:.2f}x",
                           format_count(first.kept), format_count(first.archived),
                           format_count(first.tail), report.layers.size(), report.effective_ratio));
  lines += row("resident", fmt::format("{} of rows and index, archive of {}",
                                       format_bytes(report.resident_bytes),
                                       format_bytes(report.archive_bytes)));
  if (report.steps > 0) lines += step_lines(report);
  if (report.audit.steps > 0) lines += row("audit", describe_audit(report.audit));
  if (report.target == 0 || report.sound) return lines;
  for (const RecallLayerReport& layer : report.layers) {
    lines += row(fmt::format("layer {}", layer.layer).c_str(), describe(layer.calibration));
  }
  return lines;
}

Json recall_json(const RecallReport& report) {
  Json layers = Json::array();
  for (const RecallLayerReport& layer : report.layers) {
    layers.push_back({{"layer", layer.layer},
                      {"kept", layer.kept},
                      {"archived", layer.archived},
                      {"tail", layer.tail},
                      {"calibration", calibration_json(layer.calibration)}});
  }
  const RecallAudit& audit = report.audit;
  const ResidentMemory memory = resident_memory();
  Json limit = nullptr;
  if (report.excluded_mass_limit) limit = *report.excluded_mass_limit;
  return {{"policy", "vestige"},
          {"target", report.target},
          {"sound", report.sound},
          {"effective_ratio", report.effective_ratio},
          {"resident_bytes", report.resident_bytes},
          {"archive_bytes", report.archive_bytes},
          {"rss_anonymous_bytes", memory.anonymous_bytes},
          {"rss_file_bytes", memory.file_bytes},
          {"steps", report.steps},
          {"layer_steps", report.layer_steps},
          {"trigger_rate", share(report.triggered, report.layer_steps)},
          {"dense_steps", report.dense},
          {"overflowed_steps", report.overflowed},
          {"fired_rows", report.fired_rows},
          {"fetched_rows", report.fetched_rows},
          {"bytes_read", report.bytes_read},
          {"bytes_dense", report.bytes_dense},
          {"excluded_mass_limit", limit},
          {"excluded_mass_vacuous", report.excluded_mass_limit.value_or(0) >= 1},
          {"longest_pause_s", report.longest_pause_s},
          {"audit",
           {{"steps", audit.steps},
            {"queries", audit.queries},
            {"found", audit.found},
            {"lower", audit.lower},
            {"upper", audit.upper},
            {"recalibrations", audit.recalibrations}}},
          {"layers", layers}};
}

}  // namespace ctxzip::cli
