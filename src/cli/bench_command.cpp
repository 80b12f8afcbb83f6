#include <fmt/format.h>

#include <memory>

#include "cli/arguments.h"
#include "cli/byte_size.h"
#include "cli/command.h"
#include "cli/common_options.h"
#include "cli/exit_code.h"
#include "cli/human.h"
#include "cli/input_text.h"
#include "cli/interrupt.h"
#include "cli/json_output.h"
#include "cli/model_catalogue.h"
#include "cli/model_locator.h"
#include "cli/output_file.h"
#include "cli/progress_bar.h"
#include "cli/standard_output.h"
#include "core/file.h"
#include "ctxzip/session.h"
#include "eval/speed_plot.h"

namespace ctxzip::cli {
namespace {

struct BenchFlags {
  eval::SpeedOptions speed;
  ModelFlags model;
  OutputOptions output;
  std::string plot;
};

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json bench_json(const ModelInfo& model, const eval::SpeedReport& report, int64_t n_sessions) {
  Json rows = Json::array();
  for (const eval::SpeedRow& row : report.rows) {
    rows.push_back({{"model", model.name},
                    {"context_tokens", row.context_tokens},
                    {"ratio", row.ratio},
                    {"kv_type", row.kv_type},
                    {"prefill_tokens_per_s", or_null(row.prefill_tokens_per_s)},
                    {"prefill_vs_llama_cpp", or_null(row.prefill_vs_llama_cpp)},
                    {"score_s", or_null(row.score_s)},
                    {"decode_tokens_per_s", row.decode_tokens_per_s},
                    {"decode_vs_llama_cpp", or_null(row.decode_vs_llama_cpp)},
                    {"sessions_decode_tokens_per_s", or_null(row.group_tokens_per_s)},
                    {"kv_bytes", row.kv_bytes},
                    {"peak_rss_bytes", row.peak_rss_bytes},
                    {"delta_nll", or_null(row.delta_nll)}});
  }
  Json peer = Json::array();
  for (const eval::PeerRow& row : report.peer) {
    peer.push_back({{"context_tokens", row.context_tokens},
                    {"prefill_tokens_per_s", or_null(row.prefill_tokens_per_s)},
                    {"decode_tokens_per_s", row.decode_tokens_per_s}});
  }
  return {{"rows", rows}, {"sessions", n_sessions}, {"llama_cpp", peer}};
}

std::string per_second(const std::optional<double>& value) {
  return value ? fmt::format("{:.0f}/s", *value) : "-";
}

std::string times(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}x", *value) : "-";
}

std::string bench_table(const ModelInfo& model, const eval::SpeedReport& report,
                        int64_t n_sessions) {
  std::string table = fmt::format(
      "{}; times llama.cpp (f16 cache, flash attention) in the same run\n\n{:>8} {:>10} "
      "{:>10} {:>9} {:>8} {:>9} {:>9} {:>8} {:>11} {:>10}\n",
      model.name, "context", "ratio", "KV cache", "prefill", "times", "score", "decode", "times",
      n_sessions > 1 ? fmt::format("{} sessions", n_sessions) : "", "delta_nll");
  for (const eval::SpeedRow& row : report.rows) {
    table += fmt::format(
        "{:>8} {:>10} {:>10} {:>9} {:>8} {:>9} {:>7.1f}/s {:>8} {:>11} {:>10}\n",
        format_count(row.context_tokens), fmt::format("{:g} {}", row.ratio, row.kv_type),
        format_bytes(row.kv_bytes), per_second(row.prefill_tokens_per_s),
        times(row.prefill_vs_llama_cpp), row.score_s ? format_seconds(*row.score_s) : "-",
        row.decode_tokens_per_s, times(row.decode_vs_llama_cpp),
        row.group_tokens_per_s ? fmt::format("{:.1f}/s", *row.group_tokens_per_s) : "",
        row.delta_nll ? format_nll(*row.delta_nll) : "-");
  }
  for (const eval::PeerRow& row : report.peer) {
    table += fmt::format("{:>8} {:>10} {:>10} {:>9} {:>8} {:>9} {:>7.1f}/s\n",
                         format_count(row.context_tokens), "llama.cpp", "",
                         per_second(row.prefill_tokens_per_s), "", "", row.decode_tokens_per_s);
  }
  table += fmt::format("\npeak memory {}, both programs and the model included\n",
                       format_bytes(report.rows.back().peak_rss_bytes));
  return table;
}

int run(BenchFlags& flags) {
  if (!flags.plot.empty()) check_output_file(flags.plot);
  ProgressBar bar;
  bar.status("loading the model");
  const Model model = load_model(model_path(flags.model.model), flags.model.load);
  const InterruptScope interrupt;
  const eval::SpeedHooks hooks = {.status = [&](const std::string& what) { bar.status(what); },
                                  .cancel = interrupt.token()};
  const eval::SpeedReport report = eval::measure_speed(model, flags.speed, hooks);
  bar.clear();
  if (!flags.plot.empty()) {
    const std::string picture = eval::speed_plot(report, model.info().name);
    write_file_atomically(flags.plot, [&](const WriteFn& sink) {
      sink(std::as_bytes(std::span(picture.data(), picture.size())));
    });
  }
  if (flags.output.json) {
    print_json(bench_json(model.info(), report, flags.speed.n_sessions));
  } else {
    print_out(bench_table(model.info(), report, flags.speed.n_sessions));
  }
  return kExitOk;
}

}  // namespace

Run add_bench(CLI::App& app) {
  auto flags = std::make_shared<BenchFlags>();
  eval::SpeedOptions& speed = flags->speed;
  app.add_option("--context", speed.context_tokens,
                 "Context lengths in tokens, separated by commas (default: 2048)")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false);
  app.add_option("--ratios", speed.ratios,
                 "Shares of the cache to keep, separated by commas (default: 1,0.3)")
      ->type_name("R,R...")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_choice<Schedule>(
      app, "--schedule", {{"two-pass", Schedule::kTwoPass}, {"streaming", Schedule::kStreaming}},
      [&speed](Schedule schedule) { speed.zip.schedule = schedule; },
      "As for zip (default: two-pass)");
  add_choice<ReconAttention>(
      app, "--recon-attention",
      {{"full", ReconAttention::kFull}, {"local", ReconAttention::kLocal}},
      [&speed](ReconAttention attention) { speed.zip.recon_attention = attention; },
      "As for zip (default: local)");
  add_kv_flag(app, speed.zip.kv, "As for zip (default: f16)");
  add_integer(
      app, "--chunk", {.min = 1}, [&speed](int64_t n) { speed.zip.chunk_tokens = n; },
      fmt::format("As for zip (default: {})", speed.zip.chunk_tokens));
  add_integer(
      app, "--rounds", {.min = 1, .max = 100},
      [&speed](int64_t n) { speed.n_rounds = static_cast<int>(n); },
      fmt::format("Rounds of decoding, in turns with llama.cpp (default: {})", speed.n_rounds));
  add_integer(
      app, "--sessions", {.min = 1, .max = kMostAtOnce},
      [&speed](int64_t n) { speed.n_sessions = n; },
      fmt::format("Sessions that decode side by side (default: {}); 1 leaves it out",
                  speed.n_sessions));
  app.add_flag_callback(
      "--decode-only", [&speed] { speed.decode_only = true; },
      "Repeat the rows of 512 tokens instead of prefilling all, on both sides");
  app.add_flag_callback(
      "--no-llama", [&speed] { speed.peer = false; }, "Do not measure llama.cpp");
  app.add_flag_callback(
      "--no-check", [&speed] { speed.zip.self_check = false; }, "Do not measure the loss");
  app.add_option("--plot", flags->plot, "Draw decoding speed against context length")
      ->type_name("OUT.svg");
  add_model_options(app, flags->model, std::string(default_model().name));
  add_output_options(app, flags->output);
  app.footer(
      "Examples:\n"
      "  ctxzip bench --context 1024,4096 --plot speed.svg\n"
      "  ctxzip bench -m qwen2.5-coder-1.5b --context 8192 --ratios 1,0.3 --json\n"
      "  ctxzip bench -m qwen2.5-coder-1.5b --context 30000 --decode-only");
  return [flags] { return run(*flags); };
}

}  // namespace ctxzip::cli
