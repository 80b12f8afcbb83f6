#include "attention_test_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cache/quantised_rows.h"
#include "kernels/half.h"

namespace ctxzip::testing {
namespace {

constexpr size_t kGuardFloats = 64;
constexpr float kGuardValue = -12345.678f;
constexpr size_t kGuardBytes = 256;
constexpr std::byte kGuardByte{0xa5};
constexpr size_t kPage = 4096;

size_t first_aligned(const void* memory, size_t alignment) {
  const size_t address = reinterpret_cast<size_t>(memory);
  return (alignment - address % alignment) % alignment;
}

}  // namespace

GuardedFloats::GuardedFloats(size_t n, size_t misalign)
    : memory_(n + 2 * kGuardFloats + 16 + misalign, kGuardValue), size_(n) {
  start_ =
      kGuardFloats + first_aligned(memory_.data() + kGuardFloats, 64) / sizeof(float) + misalign;
}

bool GuardedFloats::guards_intact() const {
  const auto is_guard = [](float value) { return value == kGuardValue; };
  const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(start_);
  return std::all_of(memory_.begin(), begin, is_guard) &&
         std::all_of(begin + static_cast<std::ptrdiff_t>(size_), memory_.end(), is_guard);
}

GuardedScratch::GuardedScratch(size_t bytes, size_t shift)
    : memory_(bytes + 2 * kPage + 64 * shift + kGuardBytes, kGuardByte), size_(bytes) {
  start_ = first_aligned(memory_.data(), kPage) + 64 * shift;
}

bool GuardedScratch::guards_intact() const {
  const auto end = memory_.begin() + static_cast<std::ptrdiff_t>(start_ + size_);
  return std::all_of(end, memory_.end(), [](std::byte value) { return value == kGuardByte; });
}

StoredRows::StoredRows(RowType type, int64_t head_dim, int64_t n_rows, size_t misalign)
    : type_(type), head_dim_(head_dim), n_rows_(n_rows), misalign_(misalign) {
  const QuantisedLayout layout = {type, head_dim};
  const size_t dense_bytes = row_bytes(type, head_dim) * static_cast<size_t>(n_rows);
  const bool quantised = is_quantised(type);
  const size_t offset = misalign * row_bytes(type, 1);
  k_.resize(offset + (quantised ? static_cast<size_t>(layout.key_bytes(n_rows)) : dense_bytes));
  v_.resize(offset + (quantised ? static_cast<size_t>(layout.value_bytes(n_rows)) : dense_bytes));
  exact_k_.resize(static_cast<size_t>(n_rows * head_dim));
  exact_v_.resize(exact_k_.size());
}

void StoredRows::randomise(std::mt19937& random, double k_scale) {
  std::normal_distribution<double> normal;
  for (int64_t row = 0; row < n_rows_; ++row) {
    for (int64_t dim = 0; dim < head_dim_; ++dim) {
      set_k(row, dim, static_cast<float>(k_scale * normal(random)));
      set_v(row, dim, static_cast<float>(normal(random)));
    }
  }
}

const std::byte* StoredRows::address(const std::vector<std::byte>& bytes, int64_t row) const {
  return bytes.data() + misalign_ * row_bytes(type_, 1) +
         row_bytes(type_, head_dim_) * static_cast<size_t>(row);
}

double StoredRows::set(std::vector<std::byte>& bytes, int64_t row, int64_t dim, float value) {
  if (is_quantised(type_)) return value;
  std::byte* at = bytes.data() + (address(bytes, row) - bytes.data()) + row_bytes(type_, dim);
  if (type_ == RowType::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return value;
  }
  const uint16_t half = float_to_half(value);
  std::memcpy(at, &half, sizeof(half));
  return half_to_float(half);
}

void StoredRows::set_k(int64_t row, int64_t dim, float value) {
  exact_k_[static_cast<size_t>(row * head_dim_ + dim)] = set(k_, row, dim, value);
}

void StoredRows::set_v(int64_t row, int64_t dim, float value) {
  exact_v_[static_cast<size_t>(row * head_dim_ + dim)] = set(v_, row, dim, value);
}

void StoredRows::quantise() {
  const QuantisedLayout layout = {type_, head_dim_};
  const auto store = [&](auto quantise_rows, auto element, std::vector<std::byte>& stored,
                         std::vector<double>& exact) {
    const std::vector<float> values(exact.begin(), exact.end());
    std::byte* to = stored.data() + misalign_ * row_bytes(type_, 1);
    quantise_rows(layout, DenseRows{RowType::kF32, values.data(), n_rows_}, to);
    for (int64_t at = 0; at < n_rows_ * head_dim_; ++at) {
      exact[static_cast<size_t>(at)] = element(layout, to, at / head_dim_, at % head_dim_);
    }
  };
  store(quantise_keys, key_value, k_, exact_k_);
  store(quantise_values, value_value, v_, exact_v_);
}

void StoredRows::spoil_padding() {
  const QuantisedLayout layout = {type_, head_dim_};
  std::byte* keys = k_.data() + misalign_ * row_bytes(type_, 1);
  std::byte* values = v_.data() + misalign_ * row_bytes(type_, 1);
  const std::byte ones{static_cast<unsigned char>(layout.max_code())};
  for (int64_t row = n_rows_; row % kStripRows != 0; ++row) {
    const int64_t strip = row / kStripRows;
    const int64_t in_strip = row % kStripRows;
    for (int64_t dim = 0; dim < head_dim_; ++dim) {
      const CodePlace key = layout.key_code(in_strip, dim);
      keys[layout.key_codes(strip) + key.byte] |= ones << key.shift;
      const CodePlace value = layout.value_code(in_strip, dim);
      values[layout.value_codes(strip) + value.byte] |= ones << value.shift;
    }
    const uint16_t nan = float_to_half(std::numeric_limits<float>::quiet_NaN());
    std::memcpy(values + layout.value_strip(strip) + 2 * in_strip, &nan, 2);
    std::memcpy(values + layout.value_strip(strip) + 2 * (kStripRows + in_strip), &nan, 2);
  }
}

Segment StoredRows::segment(int64_t n_rows) const { return slice(0, n_rows); }

Segment StoredRows::slice(int64_t begin, int64_t end) const {
  Segment segment = {
      .k = address(k_, begin), .v = address(shared_ ? k_ : v_, begin), .n_rows = end - begin};
  if (is_quantised(type_)) segment.quantised = type_;
  return segment;
}

Segment StoredRows::segment(const std::vector<uint32_t>& index) const {
  return {.k = address(k_, 0),
          .v = address(shared_ ? k_ : v_, 0),
          .n_rows = static_cast<int64_t>(index.size()),
          .index = index.data()};
}

double exact_score(const float* q, int64_t head_dim, double scale, const ExactRow& row) {
  const double* k = row.rows->k(row.row);
  double sum = 0;
  for (int64_t dim = 0; dim < head_dim; ++dim) {
    sum += static_cast<double>(q[dim]) * k[dim];
  }
  return sum * scale;
}

ExactHead exact_attention(const float* q, int64_t head_dim, double scale,
                          const std::vector<ExactRow>& rows) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  ExactHead head = {std::vector<double>(static_cast<size_t>(head_dim)), kNone, kNone, 0, 0, 0};
  std::vector<double> weights;
  for (const ExactRow& row : rows) {
    weights.push_back(row.masked ? kNone : exact_score(q, head_dim, scale, row));
    if (row.masked) continue;
    head.max = std::max(head.max, weights.back());
    head.max_abs_score = std::max(head.max_abs_score, std::abs(weights.back()));
  }
  if (head.max == kNone) return head;
  for (double& weight : weights) {
    weight = std::exp(weight - head.max);
    head.sum += weight;
  }
  head.lse = head.max + std::log(head.sum);
  for (size_t at = 0; at < rows.size(); ++at) {
    if (rows[at].masked) continue;
    const double* v = rows[at].rows->v(rows[at].row);
    for (int64_t dim = 0; dim < head_dim; ++dim) {
      head.out[static_cast<size_t>(dim)] += weights[at] / head.sum * v[dim];
      head.max_abs_v = std::max(head.max_abs_v, std::abs(v[dim]));
    }
  }
  return head;
}

}  // namespace ctxzip::testing
