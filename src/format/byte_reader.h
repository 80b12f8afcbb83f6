// A cursor over bytes that may be hostile.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace ctxzip {

static_assert(std::endian::native == std::endian::little, "files are little-endian, read in place");

// After the first error every read returns zeros and takes nothing: callers check ok() where it
// matters, at the latest before they use a length.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool ok() const { return error_.empty(); }
  const std::string& error() const { return error_; }
  size_t position() const { return position_; }
  size_t left() const { return bytes_.size() - position_; }

  // Records the first error; the place is the current position.
  template <typename... Args>
  void refuse(fmt::format_string<Args...> format, Args&&... args) {
    if (!ok()) return;
    error_ =
        fmt::format("byte {}: {}", position_, fmt::format(format, std::forward<Args>(args)...));
  }

  // `what` names the thing read in the error.
  std::span<const std::byte> take(uint64_t n_bytes, std::string_view what) {
    if (!ok()) return {};
    if (n_bytes > left()) {
      refuse("{} needs {} bytes, found {} before the end of the file", what, n_bytes, left());
      return {};
    }
    const auto taken = bytes_.subspan(position_, static_cast<size_t>(n_bytes));
    position_ += taken.size();
    return taken;
  }

  template <typename T>
  T value(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    T result{};
    const auto taken = take(sizeof(T), what);
    if (!taken.empty()) std::memcpy(&result, taken.data(), sizeof(T));
    return result;
  }

  std::string_view string(std::string_view what) {
    const auto taken = take(value<uint64_t>(what), what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  std::string error_;
};

}  // namespace ctxzip
