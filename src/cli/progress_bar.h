// Progress of a long operation on standard error, for people only: silent unless that is a
// terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace ctxzip::cli {

// Steps take unequal times: they have no rate.
enum class ProgressUnit { kTokens, kBytes, kSteps };

struct ProgressState {
  std::string label;
  ProgressUnit unit = ProgressUnit::kTokens;
  int64_t done = 0;
  int64_t total = 0;
  double elapsed_s = 0;
};

// "score     [######........]  43%  1,204 tokens/s  12.0 s left", at most `columns` wide.
std::string progress_line(const ProgressState& state, int columns);
// "score     2,013 tokens in 3.1 s, 649 tokens/s" (or "check     3.1 s" for steps): what stays on
// screen after a stage.
std::string finished_line(const ProgressState& state);

// One line that is redrawn in place, and one line that stays for each finished label. Not
// thread-safe.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // A new label, or `done` going back, finishes the stage before.
  void update(std::string_view label, ProgressUnit unit, int64_t done, int64_t total);
  // A text without figures, replaced by whatever comes next.
  void status(std::string_view text);
  // Ends the current stage; its line stays.
  void finish();
  // Takes an unfinished line off the screen, so that something else can be printed.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  void draw(const std::string& line);

  bool on_;
  bool line_shown_ = false;
  bool active_ = false;
  ProgressState state_;
  Clock::time_point started_;
  Clock::time_point drawn_;
};

}  // namespace ctxzip::cli
