#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "cli/byte_size.h"
#include "cli/human.h"
#include "cli/terminal.h"

namespace ctxzip::cli {
namespace {

constexpr auto kRedrawInterval = std::chrono::milliseconds(100);
// Earlier figures for rate and time left are mostly noise.
constexpr double kRateAfterSeconds = 0.3;
constexpr int kLabelWidth = 9;

std::string amount(ProgressUnit unit, int64_t n) {
  return unit == ProgressUnit::kBytes ? format_bytes(n) : format_count(n) + " tokens";
}

double rate(const ProgressState& state) {
  return state.elapsed_s > 0 ? static_cast<double>(state.done) / state.elapsed_s : 0;
}

}  // namespace

std::string progress_line(const ProgressState& state, int columns) {
  const double share =
      state.total > 0
          ? std::clamp(static_cast<double>(state.done) / static_cast<double>(state.total), 0.0, 1.0)
          : 0;
  std::string figures = fmt::format(" {:>3.0f}%", share * 100);
  if (state.elapsed_s >= kRateAfterSeconds && state.done > 0) {
    const double per_second = rate(state);
    if (state.unit != ProgressUnit::kSteps) {
      figures += fmt::format("  {}/s", amount(state.unit, static_cast<int64_t>(per_second)));
    }
    if (state.total > state.done) {
      figures += fmt::format(
          "  {} left", format_seconds(static_cast<double>(state.total - state.done) / per_second));
    }
  }
  std::string line = fmt::format("{:<{}}", state.label, kLabelWidth);
  const int room = columns - static_cast<int>(line.size() + figures.size()) - 3;
  const int width = std::min(room, 30);
  if (width >= 5) {
    const int filled = static_cast<int>(share * width);
    line += fmt::format(" [{:#<{}}{:.<{}}]", "", filled, "", width - filled);
  }
  line += figures;
  // A line that wraps could not be redrawn in place.
  return line.substr(0, static_cast<size_t>(std::max(columns - 1, 1)));
}

std::string finished_line(const ProgressState& state) {
  if (state.unit == ProgressUnit::kSteps) {
    return fmt::format("{:<{}} {}", state.label, kLabelWidth, format_seconds(state.elapsed_s));
  }
  return fmt::format("{:<{}} {} in {}, {}/s", state.label, kLabelWidth,
                     amount(state.unit, state.done), format_seconds(state.elapsed_s),
                     amount(state.unit, static_cast<int64_t>(rate(state))));
}

ProgressBar::ProgressBar() : on_(is_terminal(STDERR_FILENO)) {}

ProgressBar::~ProgressBar() { clear(); }

void ProgressBar::update(std::string_view label, ProgressUnit unit, int64_t done, int64_t total) {
  if (!on_) return;
  const auto now = Clock::now();
  if (active_ && (state_.label != label || done < state_.done)) finish();
  if (!active_) {
    state_ = {.label = std::string(label), .unit = unit};
    started_ = now;
    active_ = true;
    drawn_ = now - kRedrawInterval;
  }
  state_.done = done;
  state_.total = total;
  state_.elapsed_s = std::chrono::duration<double>(now - started_).count();
  if (done < total && now - drawn_ < kRedrawInterval) return;
  drawn_ = now;
  draw(progress_line(state_, terminal_columns(STDERR_FILENO)));
}

void ProgressBar::status(std::string_view text) {
  if (!on_) return;
  if (active_) finish();
  draw(std::string(text));
}

void ProgressBar::finish() {
  clear();
  if (active_ && state_.done > 0) fmt::print(stderr, "{}\n", finished_line(state_));
  active_ = false;
}

void ProgressBar::clear() {
  if (!line_shown_) return;
  std::fputs("\r\x1b[K", stderr);
  line_shown_ = false;
}

void ProgressBar::draw(const std::string& line) {
  fmt::print(stderr, "\r{}\x1b[K", line);
  std::fflush(stderr);
  line_shown_ = true;
}

}  // namespace ctxzip::cli
