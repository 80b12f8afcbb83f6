#include "eval/speed_plot.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "eval/plot.h"

namespace ctxzip::eval {

std::string speed_plot(const SpeedReport& report, const std::string& title) {
  std::map<double, PlotLine> by_ratio;
  for (const SpeedRow& row : report.rows) {
    PlotLine& line = by_ratio[-row.ratio];
    line.name = fmt::format("ctxzip, {:g}", row.ratio);
    line.points.push_back({static_cast<double>(row.context_tokens), row.decode_tokens_per_s});
  }
  LinePlot plot{.title = title, .x_label = "context tokens", .y_label = "tokens/s", .lines = {}};
  for (auto& [ratio, line] : by_ratio) plot.lines.push_back(std::move(line));
  PlotLine peer{.name = "llama.cpp", .points = {}};
  for (const PeerRow& row : report.peer) {
    peer.points.push_back({static_cast<double>(row.context_tokens), row.decode_tokens_per_s});
  }
  if (!peer.points.empty()) plot.lines.push_back(std::move(peer));
  return line_plot(plot);
}

}  // namespace ctxzip::eval
