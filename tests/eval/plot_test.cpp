#include "eval/plot.h"

#include <gtest/gtest.h>

namespace ctxzip::eval {
namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(LinePlot, DrawsEveryPointAtItsPlace) {
  const std::string svg = line_plot({.title = "a < b",
                                     .x_label = "x",
                                     .y_label = "y",
                                     .lines = {{"one", {{0, 0}, {1, 1, Interval{0.5, 1}}}},
                                               {"level", {{0, 0.5}, {1, 0.5}}, true}}});
  // The corners of the plot area, and half its height.
  EXPECT_NE(svg.find("points=\"70.0,350.0 520.0,40.0 \""), std::string::npos) << svg;
  EXPECT_NE(svg.find("points=\"70.0,195.0 520.0,195.0 \""), std::string::npos) << svg;
  EXPECT_NE(svg.find("a &lt; b"), std::string::npos);
  EXPECT_EQ(count(svg, "<circle"), 2u);  // none on a level
  EXPECT_EQ(count(svg, "stroke-opacity"), 1u);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(LinePlot, TicksAreRoundNumbers) {
  const std::string svg =
      line_plot({.title = "", .x_label = "", .y_label = "", .lines = {{"a", {{8000, 137}}}}});
  for (const char* tick : {">2000<", ">8000<", ">50<", ">150<"}) {
    EXPECT_NE(svg.find(tick), std::string::npos) << tick;
  }
  EXPECT_EQ(svg.find(">137<"), std::string::npos);
}

TEST(BarPlot, LeavesGapsForMissingBars) {
  const std::string svg =
      bar_plot({.title = "",
                .y_label = "",
                .series = {"a", "b"},
                .groups = {{"g", {Bar{1}, std::nullopt}}, {"h", {Bar{0.5}, Bar{0.25}}}}});
  EXPECT_EQ(count(svg, "<rect"), 1u + 3u);  // with the background
  EXPECT_NE(svg.find("height=\"310.0\" fill=\"#1b6ca8\""), std::string::npos) << svg;
  EXPECT_NE(svg.find("height=\"155.0\" fill=\"#1b6ca8\""), std::string::npos) << svg;
}

TEST(BarPlot, LongNamesAreNumberedAndListed) {
  BarPlot plot{.title = "", .y_label = "", .series = {"a"}, .groups = {}};
  for (const char* name :
       {"short", "a name that is far too long for the width of six groups", "c", "d", "e", "f"}) {
    plot.groups.push_back({name, {Bar{1}}});
  }
  const std::string svg = bar_plot(plot);
  EXPECT_NE(svg.find(">6<"), std::string::npos);
  EXPECT_NE(svg.find(">2: a name that is far too long"), std::string::npos);
  EXPECT_NE(svg.find("height=\"508\""), std::string::npos) << svg;  // 400 and six lines
}

TEST(Plots, APictureHoldsItsLegend) {
  BarPlot plot{.title = "", .y_label = "", .series = {}, .groups = {{"g", {}}}};
  for (int at = 0; at < 60; ++at) {
    plot.series.push_back("series of a long name, number " + std::to_string(at) +
                          ", with all its options");
    plot.groups[0].bars.push_back(Bar{1});
  }
  const std::string svg = bar_plot(plot);
  EXPECT_NE(svg.find("height=\"1130\""), std::string::npos) << svg.substr(0, 200);
  EXPECT_EQ(svg.find("width=\"800\""), std::string::npos);
}

TEST(GridPlot, DrawsCellsFromTheLowerLeftAndLeavesEmptyOnesWhite) {
  const std::string svg = grid_plot({.title = "",
                                     .x_label = "x",
                                     .y_label = "y",
                                     .n = 2,
                                     .shares = {0.9999, 0, 0, 0.0001}});  // (y, x)
  // Background, two cells, seven of the legend.
  EXPECT_EQ(count(svg, "<rect"), 1u + 2u + 7u);
  EXPECT_NE(svg.find("x=\"70.0\" y=\"195.0\" width=\"155.0\" height=\"155.0\""), std::string::npos)
      << svg;
  EXPECT_NE(svg.find("x=\"225.0\" y=\"40.0\" width=\"155.0\" height=\"155.0\" fill=\"#575c6d\""),
            std::string::npos)
      << svg;
}

TEST(Plots, NothingToDrawIsStillAPicture) {
  EXPECT_TRUE(line_plot({}).ends_with("</svg>\n"));
  EXPECT_TRUE(bar_plot({}).ends_with("</svg>\n"));
  EXPECT_TRUE(grid_plot({}).ends_with("</svg>\n"));
}

}  // namespace
}  // namespace ctxzip::eval
