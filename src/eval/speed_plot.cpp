#include "eval/speed_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace ctxzip::eval {
namespace {

constexpr double kWidth = 640;
constexpr double kHeight = 400;
constexpr double kLeft = 70;
constexpr double kRight = 150;  // holds the names of the lines
constexpr double kTop = 40;
constexpr double kBottom = 50;
constexpr const char* kColours[] = {"#1b6ca8", "#d1495b", "#2e8b57", "#8a5a9e", "#c77f1a"};

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;
};

std::vector<Line> lines_of(const SpeedReport& report) {
  std::map<double, Line> by_ratio;
  for (const SpeedRow& row : report.rows) {
    Line& line = by_ratio[-row.ratio];
    line.name = fmt::format("ctxzip, {:g}", row.ratio);
    line.points.emplace_back(static_cast<double>(row.context_tokens), row.decode_tokens_per_s);
  }
  std::vector<Line> lines;
  for (auto& [ratio, line] : by_ratio) lines.push_back(std::move(line));
  Line peer{.name = "llama.cpp", .points = {}};
  for (const PeerRow& row : report.peer) {
    peer.points.emplace_back(static_cast<double>(row.context_tokens), row.decode_tokens_per_s);
  }
  if (!peer.points.empty()) lines.push_back(std::move(peer));
  return lines;
}

// `text` is a model's name and may hold anything.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      out += c;
    }
  }
  return out;
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

}  // namespace

std::string speed_plot(const SpeedReport& report, const std::string& title) {
  const std::vector<Line> lines = lines_of(report);
  double most_x = 1;
  double most_y = 1;
  for (const Line& line : lines) {
    for (const auto& [x, y] : line.points) {
      most_x = std::max(most_x, x);
      most_y = std::max(most_y, y);
    }
  }
  const auto at_x = [&](double x) { return kLeft + x / most_x * (kWidth - kLeft - kRight); };
  const auto at_y = [&](double y) {
    return kHeight - kBottom - y / most_y * (kHeight - kTop - kBottom);
  };
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += label(kLeft, kTop - 18, "start", title);
  constexpr int kTicks = 5;
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double x = most_x * tick / kTicks;
    const double y = most_y * tick / kTicks;
    svg += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n",
        kLeft, kWidth - kRight, at_y(y), at_y(y));
    svg += label(kLeft - 8, at_y(y) + 4, "end", fmt::format("{:.0f}", y));
    svg += label(at_x(x), kHeight - kBottom + 18, "middle", fmt::format("{:.0f}", x));
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", "context tokens");
  svg += label(8, kTop - 4, "start", "tokens/s");
  for (size_t at = 0; at < lines.size(); ++at) {
    const char* colour = kColours[at % std::size(kColours)];
    std::string points;
    for (const auto& [x, y] : lines[at].points)
      points += fmt::format("{:.1f},{:.1f} ", at_x(x), at_y(y));
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                       points, colour);
    const auto& [x, y] = lines[at].points.back();
    svg += fmt::format("<g fill=\"{}\">{}</g>\n", colour,
                       label(at_x(x) + 8, at_y(y) + 4, "start", lines[at].name));
  }
  return svg + "</svg>\n";
}

}  // namespace ctxzip::eval
