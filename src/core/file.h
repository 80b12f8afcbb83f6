// Reading files by mapping, writing them atomically.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

namespace ctxzip {

// A read-only mapped file. If another process truncates it later, touching the lost pages raises
// SIGBUS (docs/format.md says so to users).
class MappedFile {
 public:
  // Throws Error: kNotFound, kIo. An empty file maps to an empty span.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

using WriteFn = std::function<void(std::span<const std::byte>)>;

// Calls `produce` with a sink that appends to a temporary file beside `path`, then syncs it and
// renames it over `path`. On any failure (also an exception from `produce`) the temporary is
// removed and an existing file stays as it was. A link is followed; a target that is no regular
// file is refused. Throws Error{kIo} naming the path and the reason.
void write_file_atomically(const std::string& path,
                           const std::function<void(const WriteFn&)>& produce);

}  // namespace ctxzip
