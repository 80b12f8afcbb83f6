#include "eval/source_code.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "ctxzip/error.h"
#include "support/temp_path.h"

namespace ctxzip::eval {
namespace {

std::vector<SourceFunction> functions(const std::string& text, SourceKind kind) {
  std::vector<SourceFunction> found;
  for (const SourcePiece& piece : split_source(text, kind)) {
    if (piece.function) found.push_back(*piece.function);
  }
  return found;
}

std::string joined(const std::string& text, SourceKind kind) {
  std::string all;
  for (const SourcePiece& piece : split_source(text, kind)) all += piece.text;
  return all;
}

constexpr const char* kCpp = R"(// A licence that nobody reads, with six words.

#include <x>

// Counts the lines that are longer than count_long allows, in bytes
// and without their ends.
int count_long(const Text& text, char quote = '"') {
  // A brace in a comment }
  for (auto& line : text) {
    if (line == "}") return 1;
  }
  return 0;
}

/**
 * Gives the bigger one of the two values.
 */
template <typename T>
T larger(T a, T b) {
  return a < b
             ? b : a;
}

// Too short a comment.
int nothing() {
  return
      0;
}

// The state of a machine with two arms and legs.
struct Machine {
  int arms(int n) {
    return n; }
};
)";

TEST(SplitSource, FindsFunctionsBelowComments) {
  const auto found = functions(kCpp, SourceKind::kBraces);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "count_long");
  EXPECT_EQ(
      found[0].description,
      "Counts the lines that are longer than this function allows, in bytes and without their "
      "ends.");
  EXPECT_TRUE(found[0].code.starts_with("int count_long("));
  EXPECT_TRUE(found[0].code.ends_with("return 0;\n}"));
  EXPECT_EQ(found[1].name, "larger");
  EXPECT_EQ(found[1].description, "Gives the bigger one of the two values.");
}

TEST(SplitSource, KeepsEverythingButTheDescriptions) {
  std::string expected = kCpp;
  for (const char* comment :
       {"// Counts the lines that are longer than count_long allows, in bytes\n"
        "// and without their ends.\n",
        "/**\n * Gives the bigger one of the two values.\n */\n"}) {
    const size_t at = expected.find(comment);
    ASSERT_NE(at, std::string::npos);
    expected.erase(at, std::string(comment).size());
  }
  EXPECT_EQ(joined(kCpp, SourceKind::kBraces), expected);
}

TEST(SplitSource, KnowsGoReceiversAndRustLifetimes) {
  const auto go = functions(
      "// Close ends the connection after what was sent.\nfunc (c *Conn) Close(now bool) error {\n"
      "  return nil\n}\n",
      SourceKind::kBraces);
  ASSERT_EQ(go.size(), 1u);
  EXPECT_EQ(go[0].name, "Close");
  EXPECT_EQ(go[0].description, "this function ends the connection after what was sent.");
  const auto rust = functions(
      "/// Finds the longer of two borrowed strings, bytewise.\nfn longer<'a>(x: &'a str, y: &'a "
      "str) -> &'a str {\n  if x.len() > y.len() { x }\n  else { y }\n}\n",
      SourceKind::kBraces);
  ASSERT_EQ(rust.size(), 1u);
  EXPECT_EQ(rust[0].name, "longer");
  EXPECT_TRUE(rust[0].code.ends_with("else { y }\n}"));
}

TEST(SplitSource, FindsPythonDocstrings) {
  const std::string text = R"(import os

class Box:
    def weigh(self, unit="kg",
              scale=1):
        """Weighs the box with everything that is in it.

        Args: unit.
        """
        total = 0
        for item in self.items:

            total += item
        return total

    def open(self):
        return 1

async def fetch(url):
    '''Reads what stands at the given address, twice.'''
    first = await get(url)
    return first
)";
  const auto found = functions(text, SourceKind::kPython);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "weigh");
  EXPECT_EQ(found[0].description, "Weighs the box with everything that is in it.");
  EXPECT_EQ(found[0].code,
            "    def weigh(self, unit=\"kg\",\n              scale=1):\n        total = 0\n"
            "        for item in self.items:\n\n            total += item\n        return total");
  EXPECT_EQ(found[1].name, "fetch");
  EXPECT_EQ(found[1].code, "async def fetch(url):\n    first = await get(url)\n    return first");
  const std::string left = joined(text, SourceKind::kPython);
  EXPECT_EQ(left.find("Weighs"), std::string::npos);
  EXPECT_EQ(left.find("twice"), std::string::npos);
  EXPECT_NE(left.find("def open(self):"), std::string::npos);
}

TEST(SplitSource, EndsInTheMiddleOfAnything) {
  const std::string cpp = kCpp;
  for (size_t n = 0; n <= cpp.size(); ++n) split_source(cpp.substr(0, n), SourceKind::kBraces);
  const std::string python =
      "def f(a):\n    \"\"\"One two three four five six.\"\"\"\n    b\n    c\n";
  for (size_t n = 0; n <= python.size(); ++n)
    split_source(python.substr(0, n), SourceKind::kPython);
}

TEST(ReadSourceFolder, TakesDescribedFilesByName) {
  const auto folder = std::filesystem::path(test::temp_path("source_folder_test"));
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder / "b");
  std::filesystem::create_directories(folder / ".git");
  std::ofstream(folder / "b" / "one.cpp") << kCpp;
  std::ofstream(folder / "a.cpp") << kCpp;
  std::ofstream(folder / "empty.cpp") << "int x;\n";
  std::ofstream(folder / "notes.txt") << kCpp;
  std::ofstream(folder / ".git" / "hidden.cpp") << kCpp;
  const auto files = read_source_folder(folder.string());
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name, "a.cpp");
  EXPECT_EQ(files[1].name, "b/one.cpp");
  std::filesystem::remove(folder / "a.cpp");
  std::filesystem::remove_all(folder / "b");
  EXPECT_THROW(read_source_folder(folder.string()), Error);
  EXPECT_THROW(read_source_folder((folder / "none").string()), Error);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace ctxzip::eval
