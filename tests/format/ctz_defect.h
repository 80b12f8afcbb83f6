// What tests of hand-made defects share: a valid file, its parts to spoil, and what reading must
// say.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "allocation_counter.h"
#include "ctxzip/error.h"
#include "format/gguf_reader.h"
#include "raw_gguf.h"
#include "samples.h"

namespace ctxzip {

inline constexpr uint32_t kU32 = static_cast<uint32_t>(GgufType::kU32);
inline constexpr uint32_t kI64 = static_cast<uint32_t>(GgufType::kI64);
inline constexpr uint32_t kF64 = static_cast<uint32_t>(GgufType::kF64);

class CtzDefect : public testing::Test {
 protected:
  void expect_refused(std::vector<std::byte> bytes, const std::string& part,
                      ErrorKind kind = ErrorKind::kCorruptFile) {
    const size_t n_bytes = bytes.size();
    const size_t before = allocated_bytes();
    try {
      read_ctz(std::move(bytes));
      ADD_FAILURE() << "was read";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_LE(allocated_bytes() - before, n_bytes + (size_t{1} << 20));
  }
  void expect_refused(const std::string& part, ErrorKind kind = ErrorKind::kCorruptFile) {
    expect_refused(raw_.build(), part, kind);
  }

  std::vector<std::byte> valid_ = to_bytes(make_sample());
  RawGguf raw_{valid_};
};

}  // namespace ctxzip
