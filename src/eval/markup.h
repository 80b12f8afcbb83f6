// Text, tables and pictures inside XML and HTML.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ctxzip::eval {

// Also inside quoted attributes. Control characters that XML forbids are dropped.
std::string escaped(std::string_view text);

// An <img> that holds the bytes of a PNG file.
std::string png_picture(std::span<const std::byte> png, std::string_view description);

// A table whose cells are plain text.
struct Table {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};
std::string html_table(const Table& table);

// A whole document; `body` is markup that follows the title.
std::string html_page(std::string_view title, std::string_view body);

}  // namespace ctxzip::eval
