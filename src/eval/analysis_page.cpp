#include "eval/analysis_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "eval/heatmap.h"
#include "eval/markup.h"
#include "eval/plot.h"

namespace ctxzip::eval {
namespace {

constexpr size_t kSparsityBins = 20;
constexpr size_t kOverlapBins = 20;
// Bounds that the paper's histograms are described by.
constexpr double kLittle = 0.2;
constexpr double kMuch = 0.8;

// Two tasks that are set against each other: x accounts for y, or not.
struct TaskPair {
  const TaskAttention* x = nullptr;
  const TaskAttention* y = nullptr;

  Coverage coverage() const {
    return eval::coverage(x->weights.values, y->weights.values, x->best);
  }
};

bool is_answer(const TaskAttention& task) { return !task.question.empty(); }

// Repeat and prefill against each answer, and the first answer against the others.
std::vector<TaskPair> task_pairs(const AttentionAnalysis& analysis) {
  std::vector<TaskPair> pairs;
  for (const char* name : {"repeat", "prefill", "qa-1"}) {
    for (const TaskAttention& task : analysis.tasks) {
      if (!is_answer(task) || task.name == name) continue;
      pairs.push_back({&analysis.task(name), &task});
    }
  }
  return pairs;
}

std::string map_name(const TaskAttention& task) { return fmt::format("map-{}.png", task.name); }
std::string overlap_name(const TaskPair& pair) {
  return fmt::format("overlap-{}-{}.svg", pair.x->name, pair.y->name);
}

Json sparsity_json(const TaskAttention& task) {
  const std::vector<float>& weights = task.weights.values;
  return {{"below_0.2", share_below(weights, kLittle)},
          {"from_0.8", 1 - share_below(weights, kMuch)},
          {"shares", weight_histogram(weights, kSparsityBins)}};
}

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json overlap_json(const TaskPair& pair) {
  const Coverage found = pair.coverage();
  return {{"x", pair.x->name},
          {"y", pair.y->name},
          {"below_diagonal", found.below_diagonal},
          {"above_diagonal", 1 - found.below_diagonal},
          {"n_important", found.n_important},
          {"important_below", optional_json(found.important_below)},
          {"important_kept", optional_json(found.important_kept)},
          {"file", overlap_name(pair)}};
}

Json attention_json(const AttentionAnalysis& analysis, const AnalysisViews& views) {
  Json json = {{"context_tokens", analysis.context_tokens},
               {"chunk_tokens", analysis.chunk_tokens},
               {"ratio", analysis.ratio},
               {"pairs", analysis.tasks.front().weights.pairs()},
               {"tasks", Json::array()}};
  for (const TaskAttention& task : analysis.tasks) {
    Json one = {{"name", task.name}};
    if (is_answer(task)) one.update({{"question", task.question}, {"answer", task.answer}});
    if (views.maps) one["map"] = map_name(task);
    json["tasks"].push_back(std::move(one));
  }
  if (views.sparsity) {
    json["sparsity"] = {{"bin_width", 1.0 / kSparsityBins},
                        {"prefill", sparsity_json(analysis.task("prefill"))},
                        {"repeat", sparsity_json(analysis.task("repeat"))}};
  }
  if (views.overlap) {
    json["important_weight"] = kImportantWeight;
    json["overlap"] = Json::array();
    for (const TaskPair& pair : task_pairs(analysis)) json["overlap"].push_back(overlap_json(pair));
  }
  if (analysis.source) {
    json["from_repeated_text"] = {{"all", analysis.source->all}, {"kept", analysis.source->kept}};
  }
  return json;
}

Json reply_json(const Reply& reply) {
  return {{"kind", reply_kind_name(reply.kind)}, {"text", reply.text}};
}

Json counts_json(const RefusalCounts& counts) {
  return {{"refused", counts.refused}, {"correct", counts.correct}, {"other", counts.other}};
}

Json refusals_json(const RefusalRun& run) {
  Json json = {{"ratio", run.ratio},
               {"n_examples", run.records.size()},
               {"full", counts_json(run.full())},
               {"cut", counts_json(run.cut())},
               {"refused_full_correct_cut", run.n_opened()},
               {"examples", Json::array()}};
  for (const RefusalRecord& record : run.records) {
    json["examples"].push_back({{"question", record.example.question},
                                {"contact", record.example.contact},
                                {"full", reply_json(record.full)},
                                {"cut", reply_json(record.cut)}});
  }
  return json;
}

std::string sparsity_figure(const AttentionAnalysis& analysis) {
  const std::vector<double> prefill =
      weight_histogram(analysis.task("prefill").weights.values, kSparsityBins);
  const std::vector<double> repeat =
      weight_histogram(analysis.task("repeat").weights.values, kSparsityBins);
  BarPlot plot{.title = "Largest attention weight that each pair gets",
               .y_label = "share of the pairs, by weight in bins of 0.05",
               .series = {"in prefill", "in reconstruction"},
               .groups = {}};
  for (size_t bin = 0; bin < kSparsityBins; ++bin) {
    // Every fourth bin is named by where it starts: more would not fit.
    plot.groups.push_back(
        {bin % 4 == 0 ? fmt::format("{:.1f}", static_cast<double>(bin) / kSparsityBins) : "",
         {Bar{prefill[bin]}, Bar{repeat[bin]}}});
  }
  return bar_plot(plot);
}

std::string overlap_figure(const TaskPair& pair) {
  const JointHistogram histogram =
      joint_histogram(pair.x->weights.values, pair.y->weights.values, kOverlapBins);
  return grid_plot(
      {.title = fmt::format("Largest attention: {} against {}", pair.y->name, pair.x->name),
       .x_label = pair.x->name,
       .y_label = pair.y->name,
       .n = histogram.n_bins,
       .shares = histogram.shares});
}

std::string refusals_figure(const RefusalRun& run) {
  const auto group = [](const std::string& name, const RefusalCounts& counts) {
    return BarGroup{
        name,
        {Bar{static_cast<double>(counts.refused)}, Bar{static_cast<double>(counts.correct)},
         Bar{static_cast<double>(counts.other)}}};
  };
  return bar_plot({.title = "Questions for contact details that the text holds",
                   .y_label = "replies",
                   .series = {"refused", "answered correctly", "other"},
                   .groups = {group("full cache", run.full()),
                              group(fmt::format("{:g} of the cache", run.ratio), run.cut())}});
}

std::string png_text(const TaskAttention& task) {
  const HeatMap map = weight_map(task.weights);
  const std::vector<std::byte> png = heatmap_png({&map, 1});
  return {reinterpret_cast<const char*>(png.data()), png.size()};
}

std::vector<ReportFile> pictures(const AnalysisResult& result) {
  std::vector<ReportFile> files;
  if (result.attention) {
    const AttentionAnalysis& analysis = *result.attention;
    if (result.views.sparsity) files.push_back({"sparsity.svg", sparsity_figure(analysis)});
    for (const TaskAttention& task : analysis.tasks) {
      if (result.views.maps) files.push_back({map_name(task), png_text(task)});
    }
    if (result.views.overlap) {
      for (const TaskPair& pair : task_pairs(analysis)) {
        files.push_back({overlap_name(pair), overlap_figure(pair)});
      }
    }
  }
  if (result.refusals) files.push_back({"refusals.svg", refusals_figure(*result.refusals)});
  return files;
}

std::string percent(double share) { return fmt::format("{:.1f}%", 100 * share); }
std::string percent(const std::optional<double>& share) { return share ? percent(*share) : "-"; }

Table sparsity_table(const AttentionAnalysis& analysis) {
  Table table{.title = "How sparse attention is",
              .head = {"task", "pairs below 0.2", "from 0.8 on"},
              .rows = {}};
  for (const TaskAttention& task : analysis.tasks) {
    const std::vector<float>& weights = task.weights.values;
    table.rows.push_back({task.name, percent(share_below(weights, kLittle)),
                          percent(1 - share_below(weights, kMuch))});
  }
  return table;
}

Table answers_table(const AttentionAnalysis& analysis) {
  Table table{.title = "Questions and answers", .head = {"task", "question", "answer"}, .rows = {}};
  for (const TaskAttention& task : analysis.tasks) {
    if (is_answer(task)) table.rows.push_back({task.name, task.question, task.answer});
  }
  return table;
}

Table overlap_table(const AttentionAnalysis& analysis) {
  Table table{
      .title = "What one task accounts for of another",
      .head = {"x", "y", "pairs with y at most x", "important to y", "of these: y at most x",
               fmt::format("of these: among x's best {:g}", analysis.ratio)},
      .rows = {}};
  for (const TaskPair& pair : task_pairs(analysis)) {
    const Coverage found = pair.coverage();
    table.rows.push_back({pair.x->name, pair.y->name, percent(found.below_diagonal),
                          std::to_string(found.n_important), percent(found.important_below),
                          percent(found.important_kept)});
  }
  return table;
}

Table refusals_table(const RefusalRun& run) {
  Table table{.title = "Refusals",
              .head = {"question", "contact", "full cache", "reply",
                       fmt::format("{:g} of the cache", run.ratio), "reply"},
              .rows = {}};
  for (const RefusalRecord& record : run.records) {
    table.rows.push_back({record.example.question, record.example.contact,
                          std::string(reply_kind_name(record.full.kind)), record.full.text,
                          std::string(reply_kind_name(record.cut.kind)), record.cut.text});
  }
  return table;
}

std::string source_text(const AttentionAnalysis& analysis) {
  return fmt::format(
      "While the text is repeated, {} of the pairs get their largest weight from the repeated text "
      "and not from the prompt before it; {} of the best {:g}.",
      percent(analysis.source->all), percent(analysis.source->kept), analysis.ratio);
}

// Columns side by side, as wide as their widest cell.
std::string text_table(const Table& table) {
  std::vector<std::vector<std::string>> rows{table.head};
  rows.insert(rows.end(), table.rows.begin(), table.rows.end());
  std::vector<size_t> widths(table.head.size());
  for (const auto& row : rows) {
    for (size_t column = 0; column < row.size(); ++column) {
      widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text = table.title + "\n";
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < row.size(); ++column) {
      line += fmt::format("  {:<{}}", row[column], widths[column]);
    }
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text + "\n";
}

std::string counts_text(const RefusalCounts& counts) {
  return fmt::format("{} refused, {} correct, {} other", counts.refused, counts.correct,
                     counts.other);
}

std::string figure(const ReportFile& file) {
  if (file.name.ends_with(".svg")) return "<figure>\n" + file.content + "</figure>\n";
  return "<figure>\n" + png_picture(std::as_bytes(std::span(file.content)), file.name) +
         fmt::format(
             "\n<figcaption>{}: KV heads of layer after layer from top to bottom, the text "
             "from left to right; dark blue 0, yellow 1</figcaption></figure>\n",
             escaped(file.name.substr(0, file.name.find('.'))));
}

std::string page(const AnalysisResult& result, const std::vector<ReportFile>& files) {
  std::string body;
  if (result.attention) {
    const AttentionAnalysis& analysis = *result.attention;
    body += fmt::format(
        "<p>{}, {} tokens. A pair's weight in a task is the largest softmax weight that any of the "
        "task's queries gives it.</p>\n",
        escaped(result.model_name), analysis.context_tokens);
    if (result.views.sparsity) body += html_table(sparsity_table(analysis));
    if (analysis.source) {
      body += "<p>" + source_text(analysis) + "</p>\n";
    }
    if (analysis.tasks.size() > 2) body += html_table(answers_table(analysis));
    if (result.views.overlap) {
      body += html_table(overlap_table(analysis));
      body +=
          fmt::format("<p>A pair is important from a weight of {:g} on.</p>\n", kImportantWeight);
    }
  }
  if (result.refusals) body += html_table(refusals_table(*result.refusals));
  for (const ReportFile& file : files) body += figure(file);
  return html_page("ctxzip analysis", body);
}

}  // namespace

Json to_json(const AnalysisResult& result) {
  Json json = {{"model", result.model_name}};
  if (result.attention) json.update(attention_json(*result.attention, result.views));
  if (result.refusals) json["refusals"] = refusals_json(*result.refusals);
  return json;
}

std::string analysis_text(const AnalysisResult& result) {
  std::string text;
  if (result.attention) {
    const AttentionAnalysis& analysis = *result.attention;
    text += fmt::format("{}, {} tokens\n\n", result.model_name, analysis.context_tokens);
    if (result.views.sparsity) text += text_table(sparsity_table(analysis));
    if (result.views.overlap) text += text_table(overlap_table(analysis));
    if (analysis.source) text += source_text(analysis) + "\n\n";
  }
  if (result.refusals) {
    const RefusalRun& run = *result.refusals;
    text += fmt::format(
        "Questions for contact details, {} examples\n  full cache        {}\n  {:g} of the cache  "
        "{}\n  refused at first, then correct: {}\n\n",
        run.records.size(), counts_text(run.full()), run.ratio, counts_text(run.cut()),
        run.n_opened());
  }
  return text;
}

std::vector<ReportFile> analysis_files(const AnalysisResult& result) {
  std::vector<ReportFile> files = pictures(result);
  std::string html = page(result, files);
  files.push_back({"analysis.json", to_line(to_json(result)) + "\n"});
  files.push_back({"analysis.html", std::move(html)});
  return files;
}

}  // namespace ctxzip::eval
