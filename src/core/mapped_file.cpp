#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/fail.h"
#include "core/file.h"

namespace ctxzip {
namespace {

class ReadOnlyFile {
 public:
  explicit ReadOnlyFile(const std::string& path)
      // Without O_NONBLOCK opening a pipe would wait for its writer.
      : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ >= 0) return;
    const ErrorKind kind =
        errno == ENOENT || errno == ENOTDIR ? ErrorKind::kNotFound : ErrorKind::kIo;
    fail(kind, "cannot open '{}': {}", path, std::strerror(errno));
  }
  ~ReadOnlyFile() { close(fd_); }
  ReadOnlyFile(const ReadOnlyFile&) = delete;
  ReadOnlyFile& operator=(const ReadOnlyFile&) = delete;

  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  const ReadOnlyFile file(path);
  struct stat status {};
  if (fstat(file.fd(), &status) != 0) {
    fail(ErrorKind::kIo, "cannot read '{}': {}", path, std::strerror(errno));
  }
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::kIo, "cannot read '{}': it is {}, expected a regular file", path,
         S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe");
  }
  if (status.st_size == 0) return;
  const size_t size = static_cast<size_t>(status.st_size);
  void* const pages = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd(), 0);
  if (pages == MAP_FAILED) {
    fail(ErrorKind::kIo, "cannot map '{}' ({} bytes): {}", path, size, std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(pages);
  size_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace ctxzip
