// Storage types of K and V rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ctxzip {

// Values are part of the file format. Those below 100 are the ggml_type of the same name; the
// quantised layouts (kernels/quantised_layout.h) are our own and no ggml_type means them, so their
// numbers keep well clear of ggml's, which grow from 0.
enum class RowType : uint32_t { kF32 = 0, kF16 = 1, kQ8 = 100, kQ4 = 101 };

constexpr bool is_quantised(RowType type) { return type == RowType::kQ8 || type == RowType::kQ4; }

// Bytes of one row of a type that is stored row by row, not of a quantised one.
constexpr size_t row_bytes(RowType type, int64_t dim) {
  return static_cast<size_t>(dim) * (type == RowType::kF32 ? 4 : 2);
}

constexpr std::string_view row_type_name(RowType type) {
  switch (type) {
    case RowType::kF32:
      return "f32";
    case RowType::kF16:
      return "f16";
    case RowType::kQ8:
      return "q8";
    case RowType::kQ4:
      return "q4";
  }
  return "unknown";
}

}  // namespace ctxzip
