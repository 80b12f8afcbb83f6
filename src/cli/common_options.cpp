#include "cli/common_options.h"

#include <fmt/format.h>

#include <limits>

#include "cli/arguments.h"
#include "core/file.h"
#include "ctxzip/heads.h"
#include "ctxzip/progress.h"

namespace ctxzip::cli {
namespace {

constexpr int64_t kMaxThreads = 1024;

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "log";
}

void print_log(LogLevel level, std::string_view message) {
  while (message.ends_with('\n')) message.remove_suffix(1);
  if (!message.empty()) fmt::print(stderr, "{}: {}\n", level_name(level), message);
}

}  // namespace

void add_output_options(CLI::App& app, OutputOptions& options, const std::string& fields) {
  app.add_flag("--json", options.json, "Print one JSON object instead (fields: " + fields + ")");
  app.add_flag_callback(
      "--verbose", [] { set_log_sink(print_log); }, "Messages of the engine on standard error");
}

CLI::Option* add_ctz_file(CLI::App& app, std::string& file) {
  return add_text(
             app, "FILE.ctz", [&file](std::string path) { file = std::move(path); },
             "A file made by `ctxzip zip`")
      ->type_name("");
}

void add_model_options(CLI::App& app, ModelFlags& flags, const std::string& default_model) {
  add_text(
      app, "-m,--model", [&flags](std::string model) { flags.model = std::move(model); },
      "A GGUF file or a name from `ctxzip model list` (default: " + default_model + ")")
      ->type_name("MODEL");
  add_integer(
      app, "-t,--threads", {.min = 1, .max = kMaxThreads},
      [&flags](int64_t n) { flags.load.n_threads = static_cast<int>(n); },
      "Threads to compute with (default: one per core)");
}

CLI::Option* add_allocation_flag(CLI::App& app, Allocation& allocation) {
  std::vector<std::pair<std::string, Allocation>> choices;
  for (const Allocation choice :
       {Allocation::kGlobal, Allocation::kLayer, Allocation::kUniform, Allocation::kNative}) {
    choices.emplace_back(allocation_name(choice), choice);
  }
  return add_choice<Allocation>(
      app, "--allocation", choices, [&](Allocation choice) { allocation = choice; },
      "Who shares the budget: all heads, the heads of a layer, nobody, or as the method's authors "
      "do (default: global)");
}

CLI::Option* add_kv_flag(CLI::App& app, KvType& kv, const std::string& help) {
  return add_choice<KvType>(
      app, "--kv", {{"f16", KvType::kF16}, {"q8", KvType::kQ8}, {"q4", KvType::kQ4}},
      [&kv](KvType choice) { kv = choice; }, help);
}

CLI::Option* add_heads_flag(CLI::App& app, std::string& file) {
  return add_text(
             app, "--heads", [&](std::string path) { file = std::move(path); },
             "Head scores that `ctxzip heads` measured: no scoring pass")
      ->type_name("FILE.json");
}

std::shared_ptr<const HeadScores> read_heads(const std::string& file) {
  if (file.empty()) return nullptr;
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  return std::make_shared<const HeadScores>(
      heads_from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

void add_answer_options(CLI::App& app, AskOptions& options) {
  constexpr const char* kGroup = "Answers";
  SamplingOptions& sampling = options.sampling;
  add_integer(
      app, "-n,--max-tokens", {.min = 1}, [&](int64_t n) { options.max_tokens = n; },
      fmt::format("Longest answer, in tokens (default: {})", options.max_tokens))
      ->group(kGroup);
  add_text(
      app, "--stop", [&](std::string text) { options.stop.push_back(std::move(text)); },
      "End an answer before this text; may be given several times")
      ->trigger_on_parse()
      ->group(kGroup);
  app.add_flag("--think", options.think, "Let a reasoning model think first")->group(kGroup);
  add_real(
      app, "--temp", {}, [&](double x) { sampling.temperature = x; },
      "Temperature; 0 takes the likeliest token each time (default: 0)")
      ->group(kGroup);
  add_integer(
      app, "--top-k", {.max = std::numeric_limits<int32_t>::max()},
      [&](int64_t n) { sampling.top_k = static_cast<int>(n); },
      fmt::format("Only the k likeliest tokens; 0: all (default: {})", sampling.top_k))
      ->group(kGroup);
  add_real(
      app, "--top-p", {.max = 1, .min_excluded = true}, [&](double x) { sampling.top_p = x; },
      fmt::format("Only the likeliest tokens of this joint probability (default: {})",
                  sampling.top_p))
      ->group(kGroup);
  add_real(
      app, "--min-p", {.max = 1}, [&](double x) { sampling.min_p = x; },
      fmt::format("Only tokens this likely relative to the likeliest (default: {})",
                  sampling.min_p))
      ->group(kGroup);
  add_integer(
      app, "--seed", {.max = std::numeric_limits<uint32_t>::max()},
      [&](int64_t n) { sampling.seed = static_cast<uint32_t>(n); }, "Seed of sampling (default: 0)")
      ->group(kGroup);
}

}  // namespace ctxzip::cli
