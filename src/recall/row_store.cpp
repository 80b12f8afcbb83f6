#include "recall/row_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/fail.h"

namespace ctxzip {

RowStore::RowStore(size_t row_bytes, int64_t capacity, const std::string& path)
    : row_bytes_(row_bytes), capacity_(capacity) {
  const size_t n_bytes = row_bytes * static_cast<size_t>(capacity);
  if (path.empty()) {
    memory_ = Mapping(n_bytes);
    data_ = memory_.data();
    return;
  }
  std::string name = path + ".XXXXXX";
  file_ = mkostemp(name.data(), O_CLOEXEC);
  if (file_ < 0) {
    fail(ErrorKind::kIo, "cannot create the archive '{}': {}", path, std::strerror(errno));
  }
  unlink(name.c_str());
  void* pages = MAP_FAILED;
  if (ftruncate(file_, static_cast<off_t>(n_bytes)) == 0) {
    pages = mmap(nullptr, n_bytes, PROT_READ, MAP_SHARED, file_, 0);
  }
  if (pages == MAP_FAILED) {
    const int reason = errno;
    close(file_);
    fail(ErrorKind::kIo, "cannot map the archive '{}' ({} bytes): {}", path, n_bytes,
         std::strerror(reason));
  }
  // Fetched rows are scattered: reading ahead would fill memory with their neighbours.
  madvise(pages, n_bytes, MADV_RANDOM);
  data_ = static_cast<std::byte*>(pages);
}

RowStore::~RowStore() {
  if (file_ < 0) return;
  munmap(data_, row_bytes_ * static_cast<size_t>(capacity_));
  close(file_);
}

void RowStore::append(const std::byte* rows, int64_t n) {
  CHECK(n >= 0 && n_rows_ + n <= capacity_);
  size_t at = row_bytes_ * static_cast<size_t>(n_rows_);
  size_t left = row_bytes_ * static_cast<size_t>(n);
  n_rows_ += n;
  if (file_ < 0) {
    std::memcpy(data_ + at, rows, left);
    return;
  }
  while (left > 0) {
    const ssize_t written = pwrite(file_, rows, left, static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      n_rows_ -= n;
      fail(ErrorKind::kIo, "cannot write {} bytes to the archive: {}", left,
           std::strerror(written < 0 ? errno : ENOSPC));
    }
    rows += written;
    at += static_cast<size_t>(written);
    left -= static_cast<size_t>(written);
  }
}

void RowStore::truncate(int64_t n_rows) {
  CHECK(n_rows >= 0 && n_rows <= n_rows_);
  n_rows_ = n_rows;
}

void RowStore::drop_resident() noexcept {
  if (file_ >= 0) {
    madvise(data_, row_bytes_ * static_cast<size_t>(capacity_), MADV_DONTNEED);
  }
}

}  // namespace ctxzip
