#include "eval/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace ctxzip::eval {
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

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') out += c;
    }
  }
  return out;
}

std::string png_picture(std::span<const std::byte> png, std::string_view description) {
  return fmt::format("<img alt=\"{}\" src=\"data:image/png;base64,{}\">", escaped(description),
                     base64(png));
}

std::string html_table(const Table& table) {
  std::string html = fmt::format("<h2>{}</h2>\n<table>\n<tr>", escaped(table.title));
  for (const std::string& cell : table.head) html += fmt::format("<th>{}</th>", escaped(cell));
  html += "</tr>\n";
  for (const auto& row : table.rows) {
    html += "<tr>";
    for (const std::string& cell : row) html += fmt::format("<td>{}</td>", escaped(cell));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

std::string html_page(std::string_view title, std::string_view body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<title>{0}</title>\n<style>\n"
      "body {{ font-family: sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }}\n"
      "table {{ border-collapse: collapse; font-size: 0.9em; }}\n"
      "th, td {{ border: 1px solid #cccccc; padding: 0.3em 0.6em; text-align: left; }}\n"
      "svg, img {{ max-width: 100%; height: auto; }}\n"
      "</style>\n</head>\n<body>\n<h1>{0}</h1>\n{1}</body>\n</html>\n",
      escaped(title), body);
}

}  // namespace ctxzip::eval
