// Page-granular memory, and what the process uses of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ctxzip {

// Anonymous zero-filled pages. Address space is reserved at once, memory only as pages are touched.
class Mapping {
 public:
  Mapping() = default;
  // Throws Error{kOutOfMemory}.
  explicit Mapping(size_t n_bytes);
  ~Mapping() { release(); }
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  // Gives the memory back to the system; data() is null afterwards.
  void release() noexcept;
  // Gives back the whole pages inside [begin, end); they read as zeros afterwards.
  void discard(size_t begin, size_t end) noexcept;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct ResidentMemory {
  int64_t anonymous_bytes = 0;  // RssAnon: heap, caches, repacked weights
  int64_t file_bytes = 0;       // RssFile: mapped weights and contexts
  int64_t peak_bytes = 0;       // VmHWM of the process, both kinds
};

// From the kernel's own counters; zeros where they cannot be read.
ResidentMemory resident_memory();

}  // namespace ctxzip
