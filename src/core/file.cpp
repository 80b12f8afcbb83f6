#include "core/file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "core/fail.h"
#include "core/hash.h"

namespace ctxzip {
namespace {

[[noreturn]] void fail_write(const std::string& path, const char* step, int error) {
  fail(ErrorKind::kIo, "cannot write '{}': {}: {}; the old file, if any, is unchanged", path, step,
       std::strerror(error));
}

// Where the bytes shall end up: a link is followed, so that it survives the rename.
std::string resolve_target(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return path;
  if (!S_ISREG(status.st_mode)) {
    fail(ErrorKind::kIo, "cannot write '{}': it is {}, expected a regular file or a new name", path,
         S_ISDIR(status.st_mode) ? "a directory" : "a device or pipe");
  }
  const std::unique_ptr<char, decltype(&std::free)> real(realpath(path.c_str(), nullptr),
                                                         &std::free);
  return real ? std::string(real.get()) : path;
}

std::string directory_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A new file beside the target; removed again unless it was renamed over the target.
class TemporaryFile {
 public:
  // Errors name `shown`, the path as the caller gave it.
  TemporaryFile(const std::string& directory, const std::string& shown) : shown_(shown) {
    constexpr int kTries = 100;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      uint64_t number = 0;
      if (getrandom(&number, sizeof(number), 0) != static_cast<ssize_t>(sizeof(number))) continue;
      name_ = directory + "/.ctxzip-" + to_hex(number) + ".tmp";
      // Not mkstemp: its mode is 0600, and the process-wide umask cannot be read without setting
      // it.
      fd_ = open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (fd_ >= 0) return;
      if (errno != EEXIST) break;
    }
    fail_write(shown_, "create a temporary file beside it", errno);
  }
  ~TemporaryFile() {
    if (fd_ >= 0) close(fd_);
    if (!renamed_) unlink(name_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void append(std::span<const std::byte> bytes) {
    constexpr size_t kMaxWrite = size_t{1} << 30;
    while (!bytes.empty()) {
      const ssize_t n = write(fd_, bytes.data(), std::min(bytes.size(), kMaxWrite));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) fail_write(shown_, "write", n < 0 ? errno : ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }

  void commit(const std::string& target) {
    if (fsync(fd_) != 0) fail_write(shown_, "sync", errno);
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0) fail_write(shown_, "close", errno);
    if (rename(name_.c_str(), target.c_str()) != 0) fail_write(shown_, "rename", errno);
    renamed_ = true;
  }

 private:
  const std::string& shown_;
  std::string name_;
  int fd_ = -1;
  bool renamed_ = false;
};

// Makes the rename itself durable. The new file is complete by now, so a file system that cannot
// sync directories is no failure.
void sync_directory(const std::string& directory) noexcept {
  const int fd = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

}  // namespace

void write_file_atomically(const std::string& path,
                           const std::function<void(const WriteFn&)>& produce) {
  const std::string target = resolve_target(path);
  const std::string directory = directory_of(target);
  TemporaryFile file(directory, path);
  produce([&file](std::span<const std::byte> bytes) { file.append(bytes); });
  file.commit(target);
  sync_directory(directory);
}

}  // namespace ctxzip
