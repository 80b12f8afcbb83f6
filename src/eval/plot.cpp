#include "eval/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "eval/heatmap.h"
#include "eval/markup.h"

namespace ctxzip::eval {
namespace {

constexpr double kWidth = 800;
constexpr double kHeight = 400;
constexpr double kLeft = 70;
constexpr double kRight = 280;  // holds the legend
constexpr double kTop = 40;
constexpr double kBottom = 50;
constexpr double kLegendLine = 18;
constexpr double kLetterWidth = 6.5;  // about, at this size of type
constexpr const char* kColours[] = {"#1b6ca8", "#d1495b", "#2e8b57", "#8a5a9e",
                                    "#c77f1a", "#4a4a4a", "#3aa6a6", "#a0522d"};

const char* colour(size_t at) { return kColours[at % std::size(kColours)]; }

// An axis from zero with ticks at round numbers.
struct Axis {
  double end = 1;
  double step = 0.2;
  int n_ticks = 5;  // after zero

  explicit Axis(double most) {
    if (!(most > 0)) return;
    const double rough = most / 5;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    step = 10 * power;
    for (const double round : {1.0, 2.0, 5.0}) {
      if (round * power >= rough * (1 - 1e-9)) {
        step = round * power;
        break;
      }
    }
    n_ticks = static_cast<int>(std::ceil(most / step - 1e-9));
    end = step * n_ticks;
  }
};

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

double at_y(const Axis& axis, double y) {
  return kHeight - kBottom - std::clamp(y / axis.end, 0.0, 1.0) * (kHeight - kTop - kBottom);
}

double at_x(const Axis& axis, double x) { return kLeft + x / axis.end * (kWidth - kLeft - kRight); }

double width_of(const std::string& text) { return kLetterWidth * static_cast<double>(text.size()); }

// The plot area is always the same; the picture grows with what stands beside and below it.
struct Canvas {
  double width = kWidth;
  double height = kHeight;

  void hold_legend(const std::vector<std::string>& names) {
    const double left = kWidth - kRight + 14 + 24;
    for (const std::string& name : names) width = std::max(width, left + width_of(name) + 10);
    height = std::max(height, kTop + kLegendLine * static_cast<double>(names.size()) + 10);
  }
};

// The picture's start with title and y axis.
std::string frame(const Canvas& canvas, const std::string& title, const std::string& y_label,
                  const Axis& y_axis) {
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0:g}\" height=\"{1:g}\" fill=\"white\"/>\n",
      canvas.width, canvas.height);
  svg += label(kLeft, kTop - 25, "start", title);
  svg += label(8, kTop - 11, "start", y_label);
  for (int tick = 0; tick <= y_axis.n_ticks; ++tick) {
    const double y = at_y(y_axis, y_axis.step * tick);
    svg += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#dddddd\"/>\n",
        kLeft, kWidth - kRight, y, y);
    svg += label(kLeft - 8, y + 4, "end", fmt::format("{:g}", y_axis.step * tick));
  }
  return svg;
}

std::string legend(size_t at, const std::string& name, bool dashed) {
  const double x = kWidth - kRight + 14;
  const double y = kTop + kLegendLine * static_cast<double>(at);
  return fmt::format(
             "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
             "stroke-width=\"3\"{}/>\n",
             x, x + 18, y, y, colour(at), dashed ? " stroke-dasharray=\"5 4\"" : "") +
         label(x + 24, y + 4, "start", name);
}

// A thin vertical line over an interval.
std::string whisker(double x, const Interval& interval, const Axis& y_axis, const char* stroke) {
  return fmt::format(
      "<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\" stroke=\"{3}\" "
      "stroke-opacity=\"0.6\"/>\n",
      x, at_y(y_axis, interval.low), at_y(y_axis, interval.high), stroke);
}

std::string draw_line(const PlotLine& line, const Axis& x_axis, const Axis& y_axis,
                      const char* stroke) {
  std::string svg;
  std::string points;
  for (const PlotPoint& point : line.points) {
    points += fmt::format("{:.1f},{:.1f} ", at_x(x_axis, point.x), at_y(y_axis, point.y));
    if (point.interval) svg += whisker(at_x(x_axis, point.x), *point.interval, y_axis, stroke);
    if (!line.dashed) {
      svg += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n",
                         at_x(x_axis, point.x), at_y(y_axis, point.y), stroke);
    }
  }
  return svg +
         fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>\n",
                     points, stroke, line.dashed ? " stroke-dasharray=\"5 4\"" : "");
}

}  // namespace

std::string line_plot(const LinePlot& plot) {
  double most_x = 0;
  double most_y = 0;
  for (const PlotLine& line : plot.lines) {
    for (const PlotPoint& point : line.points) {
      most_x = std::max(most_x, point.x);
      most_y = std::max({most_y, point.y, point.interval ? point.interval->high : 0});
    }
  }
  const Axis x_axis(most_x);
  const Axis y_axis(most_y);
  Canvas canvas;
  std::vector<std::string> names;
  for (const PlotLine& line : plot.lines) names.push_back(line.name);
  canvas.hold_legend(names);
  std::string svg = frame(canvas, plot.title, plot.y_label, y_axis);
  for (int tick = 0; tick <= x_axis.n_ticks; ++tick) {
    const double x = x_axis.step * tick;
    svg += label(at_x(x_axis, x), kHeight - kBottom + 18, "middle", fmt::format("{:g}", x));
  }
  svg += label((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", plot.x_label);
  for (size_t at = 0; at < plot.lines.size(); ++at) {
    svg += draw_line(plot.lines[at], x_axis, y_axis, colour(at));
    svg += legend(at, plot.lines[at].name, plot.lines[at].dashed);
  }
  return svg + "</svg>\n";
}

namespace {

double group_width(const BarPlot& plot) {
  return (kWidth - kLeft - kRight) / static_cast<double>(std::max<size_t>(plot.groups.size(), 1));
}

// Names of neighbours stand in two rows, so that one may be nearly as wide as two groups.
bool names_fit(const BarPlot& plot) {
  return std::all_of(plot.groups.begin(), plot.groups.end(), [&](const BarGroup& group) {
    return width_of(group.name) <= 1.9 * group_width(plot);
  });
}

std::string draw_group(const BarPlot& plot, size_t at, const Axis& y_axis) {
  const double width = group_width(plot);
  const double bar_width =
      0.8 * width / static_cast<double>(std::max<size_t>(plot.series.size(), 1));
  const double left = kLeft + width * (static_cast<double>(at) + 0.1);
  std::string svg;
  const std::vector<std::optional<Bar>>& bars = plot.groups[at].bars;
  for (size_t series = 0; series < bars.size(); ++series) {
    if (!bars[series]) continue;
    const Bar& bar = *bars[series];
    const double x = left + bar_width * static_cast<double>(series);
    const double top = at_y(y_axis, bar.y);
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n", x,
        top, bar_width * 0.92, kHeight - kBottom - top, colour(series));
    if (bar.interval) svg += whisker(x + bar_width * 0.46, *bar.interval, y_axis, "#222222");
  }
  return svg;
}

}  // namespace

std::string bar_plot(const BarPlot& plot) {
  double most = 0;
  for (const BarGroup& group : plot.groups) {
    for (const std::optional<Bar>& bar : group.bars) {
      if (bar) most = std::max({most, bar->y, bar->interval ? bar->interval->high : 0});
    }
  }
  const Axis y_axis(most);
  const bool fit = names_fit(plot);
  Canvas canvas;
  canvas.hold_legend(plot.series);
  const double key_top = canvas.height;
  if (!fit) canvas.height += kLegendLine * static_cast<double>(plot.groups.size());
  std::string svg = frame(canvas, plot.title, plot.y_label, y_axis);
  for (size_t at = 0; at < plot.groups.size(); ++at) {
    const BarGroup& group = plot.groups[at];
    svg += draw_group(plot, at, y_axis);
    const double middle = kLeft + group_width(plot) * (static_cast<double>(at) + 0.5);
    const double row = kHeight - kBottom + 16 + (fit && at % 2 == 1 ? 14 : 0);
    svg += label(middle, row, "middle", fit ? group.name : std::to_string(at + 1));
    if (fit) continue;
    svg += label(kLeft, key_top + kLegendLine * static_cast<double>(at), "start",
                 fmt::format("{}: {}", at + 1, group.name));
  }
  for (size_t at = 0; at < plot.series.size(); ++at) svg += legend(at, plot.series[at], false);
  return svg + "</svg>\n";
}

std::string grid_plot(const GridPlot& plot) {
  constexpr int kDecades = 6;
  const double side = kHeight - kTop - kBottom;
  const auto colour_of = [](double share) {
    return heatmap_colour(1 + std::log10(share) / kDecades);
  };
  const Axis axis(1);
  std::string svg = frame({}, plot.title, plot.y_label, axis);
  const double cell = side / static_cast<double>(std::max<size_t>(plot.n, 1));
  for (size_t at = 0; at < plot.shares.size(); ++at) {
    if (plot.shares[at] <= 0) continue;
    svg += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
        kLeft + cell * static_cast<double>(at % plot.n),
        kHeight - kBottom - cell * static_cast<double>(at / plot.n + 1), cell, cell,
        colour_of(plot.shares[at]));
  }
  svg += fmt::format(
      "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"#d1495b\"/>\n", kLeft,
      kLeft + side, kHeight - kBottom, kTop);
  for (int tick = 0; tick <= axis.n_ticks; ++tick) {
    const double x = kLeft + side * axis.step * tick;
    svg += label(x, kHeight - kBottom + 18, "middle", fmt::format("{:g}", axis.step * tick));
  }
  svg += label(kLeft + side / 2, kHeight - 10, "middle", plot.x_label);
  for (int decade = 0; decade <= kDecades; ++decade) {
    const double y = kTop + kLegendLine * decade;
    svg += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"18\" height=\"14\" fill=\"{}\"/>\n",
                       kWidth - kRight + 14, y, colour_of(std::pow(10, -decade)));
    svg += label(kWidth - kRight + 40, y + 11, "start",
                 fmt::format("{:g} of the pairs", std::pow(10, -decade)));
  }
  return svg + "</svg>\n";
}

}  // namespace ctxzip::eval
