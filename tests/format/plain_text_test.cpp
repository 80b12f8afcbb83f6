#include "format/plain_text.h"

#include <gtest/gtest.h>

namespace ctxzip {
namespace {

TEST(PlainText, AcceptsTextOfAllLengthsOfUtf8) {
  EXPECT_TRUE(is_plain_text(""));
  EXPECT_TRUE(is_plain_text("SmolLM2 135M (instruct) ~"));
  EXPECT_TRUE(is_plain_text("é 語 𝄞"));
  EXPECT_TRUE(is_plain_text("\u00a0\ud7ff\ue000\U0010ffff"));
}

TEST(PlainText, RefusesControlCharacters) {
  EXPECT_FALSE(is_plain_text("a\nb"));
  EXPECT_FALSE(is_plain_text("\x1b[31m"));
  EXPECT_FALSE(is_plain_text("\x7f"));
  EXPECT_FALSE(is_plain_text("\xc2\x9b"));
  EXPECT_FALSE(is_plain_text(std::string_view("\0", 1)));
}

TEST(PlainText, RefusesBrokenUtf8) {
  for (const char* const text :
       {"\x80", "\xc3", "\xc3(", "\xe8\xaa", "\xf0\x9d\x84", "\xc0\xaf", "\xe0\x80\xaf",
        "\xf0\x80\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff", "\xf8\x88\x80\x80\x80"}) {
    EXPECT_FALSE(is_plain_text(text));
    EXPECT_TRUE(is_plain_text(to_plain_text(text, 255)));
  }
}

TEST(PlainText, ReplacesAndCutsBetweenCharacters) {
  EXPECT_EQ(to_plain_text("a\tb\xff", 255), "a?b?");
  EXPECT_EQ(to_plain_text("ééé", 5), "éé");
  EXPECT_EQ(to_plain_text("", 5), "");
}

}  // namespace
}  // namespace ctxzip
