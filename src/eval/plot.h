// Plots as SVG pictures, written without any library: lines against a number, groups of
// bars, grids of shares.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/bootstrap.h"

namespace ctxzip::eval {

struct PlotPoint {
  double x = 0;
  double y = 0;
  std::optional<Interval> interval = {};  // of y
};

struct PlotLine {
  std::string name;
  std::vector<PlotPoint> points;  // by ascending x
  bool dashed = false;            // a level to compare with
};

struct LinePlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<PlotLine> lines;
};

// Both axes start at zero; names stand in a legend in the order of the lines.
std::string line_plot(const LinePlot& plot);

struct Bar {
  double y = 0;
  std::optional<Interval> interval = {};
};

struct BarGroup {
  std::string name;
  std::vector<std::optional<Bar>> bars;  // one for each of BarPlot::series; nothing leaves a gap
};

struct BarPlot {
  std::string title;
  std::string y_label;
  std::vector<std::string> series;
  std::vector<BarGroup> groups;
};

// Names of groups that are too long to stand below their bars are numbered and listed.
std::string bar_plot(const BarPlot& plot);

// Shares of something that has two values 0..1, in n x n cells.
struct GridPlot {
  std::string title;
  std::string x_label;
  std::string y_label;
  size_t n = 0;
  std::vector<double> shares;  // (y, x)
};

// The colour is the logarithm of the share, down to one in a million; empty cells stay white. A
// line is drawn where both values are equal.
std::string grid_plot(const GridPlot& plot);

}  // namespace ctxzip::eval
