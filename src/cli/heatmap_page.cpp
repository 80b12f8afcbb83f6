#include "cli/heatmap_page.h"

#include <fmt/format.h>

#include "cli/human.h"
#include "eval/heatmap.h"
#include "eval/markup.h"

namespace ctxzip::cli {
namespace {

std::string base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - at);
    uint32_t group = 0;
    for (size_t byte = 0; byte < 3; ++byte) {
      group = group << 8 | (byte < n ? std::to_integer<uint32_t>(bytes[at + byte]) : 0);
    }
    for (size_t digit = 0; digit < 4; ++digit) {
      out += digit <= n ? kDigits[group >> (18 - 6 * digit) & 63] : '=';
    }
  }
  return out;
}

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

}  // namespace

std::string heatmap_page(const std::string& file, const FileInfo& info, const KeptMap& map,
                         std::span<const std::byte> png, std::span<const Word> words) {
  const eval::PictureSize size = eval::heatmap_size(map, info.heads.n_kv_head);
  const ZipReport& report = info.report;
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>\n"
      "body{{font:15px/1.5 sans-serif;margin:2em;max-width:75em}}\n"
      ".map{{position:relative;padding-left:3em}}\n"
      ".map span{{position:absolute;left:0;font-size:10px;line-height:1}}\n"
      ".text{{white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.7}}\n"
      "</style></head><body>\n<h1>{0}</h1>\n"
      "<p>{1}, {2} tokens, {3} of {4} pairs kept ({5:.1f}%), {6}, {7}</p>\n<p>{8}</p>\n"
      "<h2>By layer and head</h2>\n"
      "<p>From top to bottom the KV heads of layer after layer (numbers on the left), from left to "
      "right the text. The colour is the share of rows that the head kept.</p>\n"
      "<div class=\"map\">{9}<img alt=\"kept rows by head and place\" width=\"{10}\" "
      "height=\"{11}\" src=\"data:image/png;base64,{12}\"></div>\n"
      "<h2>Word by word</h2>\n<p>The colour is the share of heads that kept the word.</p>\n"
      "<div class=\"text\">{13}</div>\n</body></html>\n",
      eval::escaped(file), eval::escaped(info.model_name), format_count(report.context_tokens),
      format_count(report.pairs_kept), format_count(report.pairs_total),
      100.0 * static_cast<double>(report.pairs_kept) / static_cast<double>(report.pairs_total),
      report.method, report.allocation, legend(), layer_labels(info, size), size.width, size.height,
      base64(png), shaded_words(words));
}

}  // namespace ctxzip::cli
