// Closed rows in the order they came, for good: in memory, or in a file that only the pages being
// read occupy memory of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/memory.h"

namespace ctxzip {

class RowStore {
 public:
  // Room for `capacity` rows; memory or disk follows the rows that are written. A file is created
  // beside `path`, its name with letters of chance behind it, readable by its owner only, and
  // unlinked at once: it lives as long as the store. Throws Error{kIo, kOutOfMemory}.
  RowStore(size_t row_bytes, int64_t capacity, const std::string& path);
  ~RowStore();
  RowStore(const RowStore&) = delete;
  RowStore& operator=(const RowStore&) = delete;

  const std::byte* rows() const { return data_; }
  int64_t n_rows() const { return n_rows_; }

  // Rows already there never move. Throws Error{kIo}.
  void append(const std::byte* rows, int64_t n);
  void clear() { truncate(0); }
  // Forgets rows from `n_rows` on.
  void truncate(int64_t n_rows);
  // Of a file: takes its pages out of this process's memory; they come back when read.
  void drop_resident() noexcept;

 private:
  size_t row_bytes_;
  int64_t capacity_;
  int64_t n_rows_ = 0;
  Mapping memory_;
  int file_ = -1;
  std::byte* data_ = nullptr;
};

}  // namespace ctxzip
