#include "core/hash.h"

#include <gtest/gtest.h>

#include <string>

namespace ctxzip {
namespace {

uint64_t hash_text(const std::string& text, uint64_t seed = 0) {
  return hash64(std::as_bytes(std::span(text)), seed);
}

// Published test vectors of XXH64.
TEST(Hash, KnownAnswers) {
  EXPECT_EQ(hash_text(""), 0xef46db3751d8e999u);
  EXPECT_EQ(hash_text("a"), 0xd24ec4f1a98c6e5bu);
  EXPECT_EQ(hash_text("abc"), 0x44bc2cf5ad770999u);
  EXPECT_EQ(hash_text("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1u);
  EXPECT_NE(hash_text("abc", 1), hash_text("abc"));
}

TEST(Hash, PiecesEqualTheWhole) {
  const std::string text(1000, 'q');
  const auto bytes = std::as_bytes(std::span(text));
  Hasher64 hasher;
  hasher.update({});
  hasher.update(bytes.first(1));
  hasher.update(bytes.subspan(1, 500));
  hasher.update(bytes.subspan(501));
  EXPECT_EQ(hasher.digest(), hash64(bytes));
  EXPECT_EQ(hasher.digest(), hasher.digest());
}

TEST(Hash, HexHasSixteenDigits) {
  EXPECT_EQ(to_hex(0), "0000000000000000");
  EXPECT_EQ(to_hex(0xfbcea83c8a378bf1u), "fbcea83c8a378bf1");
}

}  // namespace
}  // namespace ctxzip
