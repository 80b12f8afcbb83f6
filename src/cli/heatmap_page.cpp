#include "cli/heatmap_page.h"

#include <fmt/format.h>

#include "cli/human.h"
#include "eval/heatmap.h"
#include "eval/markup.h"

namespace ctxzip::cli {
namespace {

std::string layer_labels(const FileInfo& info, const eval::PictureSize& size) {
  const auto n_layer = static_cast<double>(info.heads.layers.size());
  std::string labels;
  for (size_t layer = 0; layer < info.heads.layers.size(); ++layer) {
    labels += fmt::format("<span style=\"top:{:.1f}px\">{}</span>",
                          static_cast<double>(layer) * static_cast<double>(size.height) / n_layer,
                          info.heads.layers[layer]);
  }
  return labels;
}

std::string shaded_words(std::span<const Word> words) {
  std::string out;
  for (const Word& word : words) {
    // Light text on the darker half of the scale.
    out +=
        fmt::format("<span style=\"background:{};color:{}\" title=\"{:.0f}%\">{}</span>",
                    eval::heatmap_colour(word.kept_share), word.kept_share < 0.5 ? "#fff" : "#000",
                    100 * word.kept_share, eval::escaped(word.text));
  }
  return out;
}

std::string legend() {
  std::string out;
  for (int tenth = 0; tenth <= 10; ++tenth) {
    out += fmt::format("<span style=\"background:{};color:{}\">&nbsp;{}%&nbsp;</span>",
                       eval::heatmap_colour(tenth / 10.0), tenth < 5 ? "#fff" : "#000", 10 * tenth);
  }
  return out;
}

std::string draw_panel(const FileInfo& info, const MapPanel& panel) {
  return fmt::format("<h2>{}</h2>\n<p>{}</p>\n<div class=\"map\">{}{}</div>\n",
                     eval::escaped(panel.title), eval::escaped(panel.note),
                     layer_labels(info, eval::heatmap_size(panel.map)),
                     eval::png_picture(eval::heatmap_png({&panel.map, 1}), panel.title));
}

}  // namespace

std::string heatmap_page(const std::string& file, const FileInfo& info,
                         std::span<const MapPanel> panels, std::span<const Word> words) {
  const ZipReport& report = info.report;
  std::string maps;
  for (const MapPanel& panel : panels) maps += draw_panel(info, panel);
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>\n"
      "body{{font:15px/1.5 sans-serif;margin:2em;max-width:75em}}\n"
      ".map{{position:relative;padding-left:3em}}\n"
      ".map span{{position:absolute;left:0;font-size:10px;line-height:1}}\n"
      ".text{{white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7}}\n"
      "</style></head><body>\n<h1>{0}</h1>\n"
      "<p>{1}, {2} tokens, {3} of {4} pairs kept ({5:.1f}%), {6}, {7}</p>\n<p>{8}</p>\n"
      "<p>In the pictures stand from top to bottom the KV heads of layer after layer (numbers on "
      "the "
      "left), and from left to right the text.</p>\n{9}"
      "<h2>Word by word</h2>\n<p>The colour is the share of heads that kept the word.</p>\n"
      "<div class=\"text\">{10}</div>\n</body></html>\n",
      eval::escaped(file), eval::escaped(info.model_name), format_count(report.context_tokens),
      format_count(report.pairs_kept), format_count(report.pairs_total),
      100.0 * static_cast<double>(report.pairs_kept) / static_cast<double>(report.pairs_total),
      report.method, report.allocation, legend(), maps, shaded_words(words));
}

}  // namespace ctxzip::cli
