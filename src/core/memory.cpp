#include "core/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include "core/fail.h"

namespace ctxzip {
namespace {

size_t page_size() {
  static const size_t size = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

Mapping::Mapping(size_t n_bytes) {
  if (n_bytes == 0) return;
  // NORESERVE: a cache for the trained length may exceed memory as long as its rows do not.
  void* const pages = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    fail(ErrorKind::kOutOfMemory,
         "cannot reserve {} bytes of memory for a cache: {}; use a shorter text or free memory",
         n_bytes, std::strerror(errno));
  }
  data_ = static_cast<std::byte*>(pages);
  size_ = n_bytes;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void Mapping::release() noexcept {
  if (data_ != nullptr) munmap(data_, size_);
  data_ = nullptr;
  size_ = 0;
}

void Mapping::discard(size_t begin, size_t end) noexcept {
  if (data_ == nullptr) return;
  const size_t page = page_size();
  // The mapping owns the whole of its last page.
  const size_t last = end >= size_ ? (size_ + page - 1) / page * page : end / page * page;
  const size_t first = (begin + page - 1) / page * page;
  if (first < last) madvise(data_ + first, last - first, MADV_DONTNEED);
}

ResidentMemory resident_memory() {
  ResidentMemory memory;
  std::ifstream status("/proc/self/status");
  std::string key;
  int64_t kib = 0;
  while (status >> key) {
    int64_t* const field = key == "RssAnon:"   ? &memory.anonymous_bytes
                           : key == "RssFile:" ? &memory.file_bytes
                           : key == "VmHWM:"   ? &memory.peak_bytes
                                               : nullptr;
    if (field != nullptr && status >> kib) *field = kib * 1024;
    status.clear();
    status.ignore(4096, '\n');
  }
  return memory;
}

}  // namespace ctxzip
