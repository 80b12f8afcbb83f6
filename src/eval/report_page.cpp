#include "eval/report_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include "eval/markup.h"
#include "eval/plot.h"

namespace ctxzip::eval {
namespace {

// The paper's comparisons are of 30% of the cache.
constexpr double kUsualRatio = 0.3;
constexpr double kMebibyte = 1 << 20;

std::string with_setting(const std::string& name, const std::string& setting) {
  return setting.empty() ? name : name + ", " + setting;
}

// For a file's name: letters and digits, hyphens between them.
std::string slug(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.';
    if (plain) {
      out += c;
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (out.ends_with('-')) out.pop_back();
  return out.empty() ? "x" : out;
}

// The given names without repetitions, in order.
template <typename Items, typename Name>
std::vector<std::string> names_of(const Items& items, Name name) {
  std::vector<std::string> names;
  for (const auto& item : items) {
    const std::string next = name(item);
    if (std::find(names.begin(), names.end(), next) == names.end()) names.push_back(next);
  }
  return names;
}

// The ratio below 1 nearest to the usual one.
std::optional<double> compared_ratio(const std::set<double>& ratios) {
  std::optional<double> nearest;
  for (const double ratio : ratios) {
    if (ratio >= 1) continue;
    if (!nearest || std::abs(ratio - kUsualRatio) < std::abs(*nearest - kUsualRatio))
      nearest = ratio;
  }
  return nearest;
}

// All settings of one model and task.
using TaskRuns = std::vector<const ReportTask*>;

std::vector<TaskRuns> by_model_and_task(const Report& report) {
  std::vector<TaskRuns> all;
  for (const ReportTask& task : report.tasks) {
    const auto same = [&](const TaskRuns& runs) {
      return runs[0]->model == task.model && runs[0]->task == task.task;
    };
    auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end()) found = all.insert(all.end(), TaskRuns{});
    found->push_back(&task);
  }
  return all;
}

ReportFile score_figure(const TaskRuns& runs) {
  const ReportTask& first = *runs[0];
  LinePlot plot{.title = fmt::format("{} on {}", first.task, first.model),
                .x_label = "share of the cache kept",
                .y_label = first.metrics.front(),
                .lines = {}};
  for (const ReportTask* task : runs) {
    std::map<std::string, size_t> line_of;
    for (const VariantSummary& variant : task->variants) {
      const MetricSummary& metric = variant.metrics.front();
      const std::string name = with_setting(variant.method, task->setting);
      if (variant.method == "full") {
        plot.lines.push_back({name, {{0, metric.mean}, {1, metric.mean}}, /*dashed=*/true});
        continue;
      }
      const auto [line, is_new] = line_of.try_emplace(variant.method, plot.lines.size());
      if (is_new) plot.lines.push_back({.name = name, .points = {}});
      plot.lines[line->second].points.push_back({variant.ratio, metric.mean, metric.interval});
    }
  }
  return {fmt::format("score-{}-{}.svg", slug(first.model), slug(first.task)), line_plot(plot)};
}

ReportFile relative_figure(const Report& report, const std::string& model) {
  LinePlot plot{.title = fmt::format("{}: score relative to the full cache, mean of tasks", model),
                .x_label = "share of the cache kept",
                .y_label = "relative performance",
                .lines = {}};
  std::map<std::string, size_t> line_of;
  for (const RelativeRow& row : report.relative) {
    if (row.model != model) continue;
    const std::string name = with_setting(row.method, row.setting);
    const auto [line, is_new] = line_of.try_emplace(name, plot.lines.size());
    if (is_new) plot.lines.push_back({.name = name, .points = {}});
    plot.lines[line->second].points.push_back({row.ratio, row.mean});
  }
  for (PlotLine& line : plot.lines) {
    std::sort(line.points.begin(), line.points.end(),
              [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
  }
  return {fmt::format("relative-{}.svg", slug(model)), line_plot(plot)};
}

// One group of bars for each model, at one ratio and the usual options.
std::optional<ReportFile> models_figure(const Report& report) {
  std::vector<RelativeRow> rows;
  std::set<double> ratios;
  for (const RelativeRow& row : report.relative) {
    if (row.setting.empty()) ratios.insert(row.ratio);
  }
  const std::optional<double> ratio = compared_ratio(ratios);
  if (!ratio) return std::nullopt;
  std::copy_if(report.relative.begin(), report.relative.end(), std::back_inserter(rows),
               [&](const RelativeRow& row) { return row.setting.empty() && row.ratio == *ratio; });
  const auto models = names_of(rows, [](const RelativeRow& row) { return row.model; });
  if (models.size() < 2) return std::nullopt;
  BarPlot plot{
      .title = fmt::format("Score relative to the full cache at {}, mean of tasks", *ratio),
      .y_label = "relative performance",
      .series = names_of(rows, [](const RelativeRow& row) { return row.method; }),
      .groups = {}};
  for (const std::string& model : models) {
    BarGroup group{model, std::vector<std::optional<Bar>>(plot.series.size())};
    for (const RelativeRow& row : rows) {
      if (row.model != model) continue;
      const auto at = std::find(plot.series.begin(), plot.series.end(), row.method);
      group.bars[static_cast<size_t>(at - plot.series.begin())] = Bar{row.mean};
    }
    plot.groups.push_back(std::move(group));
  }
  return ReportFile{"relative-models.svg", bar_plot(plot)};
}

// One group of bars for each setting, at one ratio.
std::optional<ReportFile> ablation_figure(const TaskRuns& runs) {
  if (runs.size() < 2) return std::nullopt;
  std::set<double> ratios;
  std::vector<std::string> methods;
  for (const ReportTask* task : runs) {
    for (const VariantSummary& variant : task->variants) {
      ratios.insert(variant.ratio);
      if (std::find(methods.begin(), methods.end(), variant.method) == methods.end())
        methods.push_back(variant.method);
    }
  }
  const std::optional<double> ratio = compared_ratio(ratios);
  if (!ratio) return std::nullopt;
  BarPlot plot{.title = fmt::format("{} on {} at {}", runs[0]->task, runs[0]->model, *ratio),
               .y_label = runs[0]->metrics.front(),
               .series = methods,
               .groups = {}};
  for (const ReportTask* task : runs) {
    BarGroup group{task->setting.empty() ? "usual options" : task->setting,
                   std::vector<std::optional<Bar>>(methods.size())};
    for (const VariantSummary& variant : task->variants) {
      if (variant.method != "full" && variant.ratio != *ratio) continue;
      const auto at = std::find(methods.begin(), methods.end(), variant.method);
      group.bars[static_cast<size_t>(at - methods.begin())] =
          Bar{variant.metrics.front().mean, variant.metrics.front().interval};
    }
    plot.groups.push_back(std::move(group));
  }
  return ReportFile{fmt::format("settings-{}-{}.svg", slug(runs[0]->model), slug(runs[0]->task)),
                    bar_plot(plot)};
}

std::vector<ReportFile> figures_of(const Report& report) {
  std::vector<ReportFile> figures;
  const auto models = names_of(report.relative, [](const RelativeRow& row) { return row.model; });
  for (const std::string& model : models) figures.push_back(relative_figure(report, model));
  if (auto figure = models_figure(report)) figures.push_back(std::move(*figure));
  for (const TaskRuns& runs : by_model_and_task(report)) {
    figures.push_back(score_figure(runs));
    if (auto figure = ablation_figure(runs)) figures.push_back(std::move(*figure));
  }
  // Names of models may become the same file name.
  std::map<std::string, int> n_of_name;
  for (ReportFile& figure : figures) {
    const int n = n_of_name[figure.name]++;
    if (n > 0) figure.name.insert(figure.name.size() - 4, fmt::format("-{}", n + 1));
  }
  return figures;
}

std::string interval_text(const std::optional<Interval>& interval) {
  return interval ? fmt::format(" [{:.3f}, {:.3f}]", interval->low, interval->high) : "";
}

Table task_table(const ReportTask& task) {
  Table table{.title = fmt::format("{} on {}", with_setting(task.task, task.setting), task.model),
              .head = {"method", "ratio", "contexts", "questions"},
              .rows = {}};
  table.head.insert(table.head.end(), task.metrics.begin(), task.metrics.end());
  table.head.insert(table.head.end(), {"relative [95%]", "KV cache, MiB"});
  for (const VariantSummary& variant : task.variants) {
    std::vector<std::string> row{variant.method, fmt::format("{}", variant.ratio),
                                 std::to_string(variant.n_contexts),
                                 std::to_string(variant.n_questions)};
    for (size_t at = 0; at < variant.metrics.size(); ++at) {
      const MetricSummary& metric = variant.metrics[at];
      // Intervals of all metrics would hide the figures.
      row.push_back(fmt::format("{:.3f}", metric.mean) +
                    (at == 0 ? interval_text(metric.interval) : ""));
    }
    const MetricSummary& first = variant.metrics.front();
    row.push_back(first.relative ? fmt::format("{:.3f}", *first.relative) +
                                       interval_text(first.relative_interval)
                                 : "-");
    row.push_back(fmt::format("{:.3g}", variant.kv_bytes / kMebibyte));
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::vector<Table> tables_of(const Report& report) {
  std::vector<Table> tables;
  if (!report.relative.empty()) {
    Table table{.title = "Relative performance, mean of tasks",
                .head = {"model", "setting", "method", "ratio", "relative", "tasks"},
                .rows = {}};
    for (const RelativeRow& row : report.relative) {
      table.rows.push_back({row.model, row.setting.empty() ? "-" : row.setting, row.method,
                            fmt::format("{}", row.ratio), fmt::format("{:.3f}", row.mean),
                            fmt::format("{} ({})", row.tasks.size(), fmt::join(row.tasks, ", "))});
    }
    tables.push_back(std::move(table));
  }
  for (const ReportTask& task : report.tasks) tables.push_back(task_table(task));
  return tables;
}

std::string markdown_row(const std::vector<std::string>& cells) {
  std::string row = "|";
  for (const std::string& cell : cells) {
    row += ' ';
    for (const char c : cell) {
      if (c == '|') row += '\\';
      row += c;
    }
    row += " |";
  }
  return row + "\n";
}

std::string page(const Report& report, const std::vector<ReportFile>& figures) {
  std::string body;
  if (!report.notes.empty()) {
    body += "<ul>\n";
    for (const std::string& note : report.notes) body += "<li>" + escaped(note) + "</li>\n";
    body += "</ul>\n";
  }
  for (const ReportFile& figure : figures) body += "<figure>\n" + figure.content + "</figure>\n";
  for (const Table& table : tables_of(report)) body += html_table(table);
  return html_page("ctxzip evaluation", body);
}

}  // namespace

std::string report_markdown(const Report& report, const std::vector<ReportFile>& figures) {
  std::string text = "# ctxzip evaluation\n";
  if (!report.notes.empty()) text += "\n";
  for (const std::string& note : report.notes) text += "- " + note + "\n";
  for (const Table& table : tables_of(report)) {
    text += fmt::format("\n## {}\n\n", table.title);
    text += markdown_row(table.head);
    text += markdown_row(std::vector<std::string>(table.head.size(), "---"));
    for (const auto& row : table.rows) text += markdown_row(row);
  }
  if (!figures.empty()) text += "\n## Figures\n\n";
  for (const ReportFile& figure : figures) {
    text += fmt::format("![{}]({})\n", figure.name.substr(0, figure.name.size() - 4), figure.name);
  }
  return text;
}

std::vector<ReportFile> report_files(const Report& report) {
  std::vector<ReportFile> files = figures_of(report);
  std::string markdown = report_markdown(report, files);
  std::string html = page(report, files);
  files.push_back({"report.md", std::move(markdown)});
  files.push_back({"report.html", std::move(html)});
  return files;
}

}  // namespace ctxzip::eval
