// Reading arbitrary bytes as a .ctz file throws an Error or gives a context whose rows are there
// and which writes back to a readable file. Run: ctz_reader_fuzz -max_len=20000 CORPUS (start it
// with tests/data/*.ctz).
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ctxzip/error.h"
#include "format/ctz.h"
#include "reseal.h"

namespace {

using ctxzip::CtzFile;

void require(bool condition) {
  if (!condition) std::abort();
}

// Touches the first and last byte of every head's rows, for the address sanitizer.
void touch_rows(const ctxzip::ZippedRows& rows) {
  volatile std::byte sink{};
  for (int64_t layer = 0; layer < rows.shape.n_layer; ++layer) {
    for (int64_t head = 0; head < rows.shape.n_kv_head; ++head) {
      const ctxzip::Segment segment = rows.segment(layer, head);
      if (segment.n_rows == 0) continue;
      const auto touch = [&](const void* data, size_t n_bytes) {
        sink = static_cast<const std::byte*>(data)[0];
        sink = static_cast<const std::byte*>(data)[n_bytes - 1];
      };
      touch(segment.k, ctxzip::stored_key_bytes(rows.shape, segment.n_rows));
      touch(segment.v, ctxzip::stored_value_bytes(rows.shape, segment.n_rows));
    }
  }
  static_cast<void>(sink);
}

void read(std::vector<std::byte> bytes) {
  try {
    const CtzFile file = ctxzip::read_ctz(std::move(bytes));
    touch_rows(file.rows.global);
    touch_rows(file.rows.local);
    std::vector<std::byte> again;
    ctxzip::write_ctz(file.meta, file.rows, [&again](std::span<const std::byte> piece) {
      again.insert(again.end(), piece.begin(), piece.end());
    });
    const CtzFile second = ctxzip::read_ctz(std::move(again));
    require(second.rows.global.kept == file.rows.global.kept &&
            second.meta.model == file.meta.model);
  } catch (const ctxzip::Error&) {
    // Refusing is the expected outcome of most inputs.
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* const first = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> bytes(first, first + size);
  read(bytes);
  // Mutations break checksums; behind right ones lies the rest of the reader.
  ctxzip::reseal(bytes);
  read(std::move(bytes));
  return 0;
}
