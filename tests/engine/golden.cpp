#include "engine/golden.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/fail.h"
#include "support/engine_run.h"

namespace ctxzip::test {
namespace {

std::vector<uint8_t> decode_base64(const std::string& text) {
  static const std::string kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<uint8_t> bytes;
  uint32_t bits = 0;
  int n_bits = 0;
  for (const char digit : text) {
    const size_t value = kDigits.find(digit);
    if (value == std::string::npos) break;
    bits = bits << 6 | static_cast<uint32_t>(value);
    n_bits += 6;
    if (n_bits >= 8) bytes.push_back(static_cast<uint8_t>(bits >> (n_bits -= 8)));
  }
  return bytes;
}

}  // namespace

nlohmann::json read_golden(const std::string& name) {
  std::ifstream file(data_path("golden/" + name));
  CHECK(file.good());
  return nlohmann::json::parse(file);
}

KeepSet decode_bitmap(const std::string& base64, int64_t n_layer, int64_t n_kv_head,
                      int64_t n_context) {
  const std::vector<uint8_t> bytes = decode_base64(base64);
  const int64_t per_head = (n_context + 7) / 8;
  CHECK(static_cast<int64_t>(bytes.size()) == n_layer * n_kv_head * per_head);
  KeepSet kept{.n_layer = n_layer, .n_kv_head = n_kv_head, .n_context = n_context, .rows = {}};
  for (int64_t head = 0; head < n_layer * n_kv_head; ++head) {
    std::vector<uint32_t>& rows = kept.rows.emplace_back();
    for (int64_t row = 0; row < n_context; ++row) {
      const uint8_t byte = bytes[static_cast<size_t>(head * per_head + row / 8)];
      if ((byte >> (row % 8) & 1) != 0) rows.push_back(static_cast<uint32_t>(row));
    }
  }
  return kept;
}

double overlap(const KeepSet& expected, const KeepSet& found) {
  CHECK(expected.rows.size() == found.rows.size());
  int64_t common = 0;
  for (size_t head = 0; head < expected.rows.size(); ++head) {
    std::vector<uint32_t> both;
    std::set_intersection(expected.rows[head].begin(), expected.rows[head].end(),
                          found.rows[head].begin(), found.rows[head].end(),
                          std::back_inserter(both));
    common += static_cast<int64_t>(both.size());
  }
  return static_cast<double>(common) / static_cast<double>(expected.pairs_kept());
}

}  // namespace ctxzip::test
