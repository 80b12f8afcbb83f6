// Storage types of K and V rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ctxzip {

enum class RowType : uint32_t { kF32 = 0, kF16 = 1 };  // values are part of the file format

constexpr size_t row_bytes(RowType type, int64_t dim) {
  return static_cast<size_t>(dim) * (type == RowType::kF32 ? 4 : 2);
}

constexpr std::string_view row_type_name(RowType type) {
  return type == RowType::kF32 ? "f32" : "f16";
}

}  // namespace ctxzip
