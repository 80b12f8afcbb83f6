#include "cli/recall_flags.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "cli/arguments.h"

namespace ctxzip::cli {
namespace {

constexpr const char* kGroup = "VestigeKV (models of latent attention without rotation)";

std::optional<double> parse_real(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "1/32" or "0.03".
std::optional<double> parse_share(const std::string& text) {
  const size_t slash = text.find('/');
  if (slash == std::string::npos) return parse_real(text);
  const auto above = parse_real(std::string_view(text).substr(0, slash));
  const auto below = parse_real(std::string_view(text).substr(slash + 1));
  if (!above || !below || *below <= 0) return std::nullopt;
  return *above / *below;
}

class Adder {
 public:
  Adder(CLI::App& app, RecallFlags& flags) : app_(app), flags_(flags) {}

  template <typename T>
  std::function<void(T)> setting(std::function<void(StreamOptions&, T)> set) {
    return [&flags = flags_, set = std::move(set)](T value) {
      flags.changes.emplace_back([set, value](StreamOptions& options) { set(options, value); });
    };
  }
  void keep(CLI::Option* option) {
    option->group(kGroup);
    flags_.options.push_back(option);
  }
  void integer(const char* flag, IntegerRange range, const char* help,
               std::function<void(StreamOptions&, int64_t)> set) {
    keep(add_integer(app_, flag, range, setting<int64_t>(std::move(set)), help));
  }
  void real(const char* flag, RealRange range, const char* help,
            std::function<void(StreamOptions&, double)> set) {
    keep(add_real(app_, flag, range, setting<double>(std::move(set)), help));
  }
  void text(const char* flag, const char* type, const char* help,
            std::function<void(StreamOptions&, const std::string&)> set) {
    keep(add_text(app_, flag, setting<std::string>(std::move(set)), help)->type_name(type));
  }
  void toggle(const char* flag, const char* help, std::function<void(StreamOptions&)> set) {
    keep(app_.add_flag_callback(
        flag, [&flags = flags_, set] { flags.changes.emplace_back(set); }, help));
  }

 private:
  CLI::App& app_;
  RecallFlags& flags_;
};

void set_recall(StreamOptions& options, const std::string& text) {
  options.policy.recall = text != "off";
  options.policy.sound = false;
  if (text == "off") return;
  const auto target = parse_real(text);
  if (!target || !(*target > 0 && *target < 1)) {
    throw CLI::ValidationError("--recall", "'" + text + "' is not off or a number between 0 and 1");
  }
  options.policy.target.recall = *target;
}

void add_ranking_flags(CLI::App& app, Adder& add) {
  add.text("--rho", "X", "Share of closed rows that are kept: 1/32, 0.05 (default: 1/32)",
           [](StreamOptions& options, const std::string& text) {
             const auto share = parse_share(text);
             if (!share || !(*share > 0 && *share <= 1)) {
               throw CLI::ValidationError(
                   "--rho", "'" + text + "' is not a share above 0 and at most 1, as 1/32 or 0.05");
             }
             options.policy.keep_ratio = *share;
           });
  add.integer("--block", {.min = 64, .max = 1 << 24}, "Rows of a block (default: 4096)",
              [](StreamOptions& options, int64_t n) { options.policy.block_rows = n; });
  add.real("--bins", {.max = 2048, .min_excluded = true},
           "Slow bins that do not count, in 4096 rows (default: 16)",
           [](StreamOptions& options, double x) { options.policy.bins_per_4096 = x; });
  add.integer("--sinks", {.max = 1 << 24}, "First rows, always kept (default: 4)",
              [](StreamOptions& options, int64_t n) { options.policy.n_sinks = n; });
  const auto window = add.setting<WindowForm>(
      [](StreamOptions& options, WindowForm form) { options.policy.window = form; });
  add.keep(add_choice<WindowForm>(
      app, "--window", {{"block", WindowForm::kBlock}, {"prefix", WindowForm::kPrefix}}, window,
      "Rank each block by itself, or all closed rows anew each time (default: block)"));
  add.toggle("--close-now", "Close the open block where the text ends",
             [](StreamOptions& options) { options.close_now = true; });
  add.toggle("--control", "Run a model with rotated rows all the same, to see it fail",
             [](StreamOptions& options) { options.control = true; });
}

void add_session_flags(Adder& add) {
  add.text("--recall", "TARGET|off",
           "Chance that a row which would win is found again; off: only kept rows and the tail "
           "(default: 0.9)",
           set_recall);
  add.toggle("--sound", "Find every row that would win, at the price of reading more",
             [](StreamOptions& options) { options.policy.sound = true; });
  add.text(
      "--archive", "FILE", "Keep archived rows in files of this name, not in memory",
      [](StreamOptions& options, const std::string& path) { options.policy.archive_path = path; });
  add.integer("--per-head-cap", {.min = 1, .max = 1 << 24},
              "Most rows that a head may fetch in a step: no recall is promised then (default: all "
              "that fire)",
              [](StreamOptions& options, int64_t n) { options.policy.top_per_head = n; });
  add.integer("--dense-below", {.max = 1 << 30},
              "Attend to everything while there are fewer rows (default: 0)",
              [](StreamOptions& options, int64_t n) { options.policy.dense_below = n; });
  add.integer("--audit", {.min = 1},
              "Score all rows every so many steps, and report the true recall",
              [](StreamOptions& options, int64_t n) { options.audit_steps = n; });
}

}  // namespace

std::string RecallFlags::first_given() const {
  for (const CLI::Option* const option : options) {
    if (option->count() > 0) return "--" + option->get_lnames().front();
  }
  return "";
}

StreamOptions RecallFlags::apply(StreamOptions stream) const {
  for (const auto& change : changes) change(stream);
  if (stream.policy.sound && !stream.policy.recall) {
    throw CLI::ValidationError("--sound", "finds what --recall off does not look for");
  }
  return stream;
}

void add_recall_flags(CLI::App& app, RecallFlags& flags, RecallUse use) {
  Adder add(app, flags);
  if (use != RecallUse::kStoredText) {
    add_choice<bool>(
        app, "--policy", {{"vestige", true}}, [&flags](bool chosen) { flags.chosen = chosen; },
        "Keep every row but read few of them (docs/vestigekv.md)")
        ->group(kGroup);
    add_ranking_flags(app, add);
  }
  add_session_flags(add);
}

void require_policy(const RecallFlags& flags) {
  const std::string given = flags.first_given();
  if (!flags.chosen && !given.empty()) {
    throw CLI::ValidationError(given, "needs --policy vestige");
  }
}

}  // namespace ctxzip::cli
