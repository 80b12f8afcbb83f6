// Writing the keys of a .ctz file.
#pragma once

#include <gguf.h>

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/fail.h"
#include "format/ctz_layout.h"
#include "format/plain_text.h"

namespace ctxzip {

// Typed setters under one name; refuse what the reader would refuse.
class KeyWriter {
 public:
  explicit KeyWriter(gguf_context* gguf) : gguf_(gguf) {}

  void set(const char* key, const std::string& value) {
    if (value.size() > kMaxTextBytes || !is_plain_text(value)) {
      fail(ErrorKind::kInvalidArgument, "{} is not plain text of at most {} bytes", key,
           kMaxTextBytes);
    }
    gguf_set_val_str(gguf_, key, value.c_str());
  }
  void set(const char* key, double value) {
    check_finite(key, value);
    gguf_set_val_f64(gguf_, key, value);
  }
  void set(const char* key, bool value) { gguf_set_val_bool(gguf_, key, value); }
  void set(const char* key, uint32_t value) { gguf_set_val_u32(gguf_, key, value); }
  void set(const char* key, int64_t value) { gguf_set_val_i64(gguf_, key, value); }
  void set(const char* key, uint64_t value) { gguf_set_val_u64(gguf_, key, value); }
  void set(const char* key, const std::vector<int32_t>& values) {
    gguf_set_arr_data(gguf_, key, GGUF_TYPE_INT32, values.data(), values.size());
  }
  void set(const char* key, const std::vector<uint32_t>& values) {
    gguf_set_arr_data(gguf_, key, GGUF_TYPE_UINT32, values.data(), values.size());
  }
  void set(const char* key, const std::vector<uint64_t>& values) {
    gguf_set_arr_data(gguf_, key, GGUF_TYPE_UINT64, values.data(), values.size());
  }
  void set(const char* key, const std::vector<double>& values) {
    for (const double value : values) check_finite(key, value);
    gguf_set_arr_data(gguf_, key, GGUF_TYPE_FLOAT64, values.data(), values.size());
  }
  template <typename T>
  void set(const char* key, const std::optional<T>& value) {
    if (value) set(key, *value);
  }

 private:
  static void check_finite(const char* key, double value) {
    if (std::isfinite(value)) return;
    fail(ErrorKind::kInvalidArgument, "{} is {}, expected a finite number", key, value);
  }

  gguf_context* gguf_;
};

}  // namespace ctxzip
