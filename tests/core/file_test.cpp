#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "ctxzip/error.h"

namespace ctxzip {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const fs::path& path, const std::string& text) {
  write_file_atomically(path, [&](const WriteFn& write) { write(as_bytes(text)); });
}

// The error that `action` throws; fails the test if it throws none.
template <typename Action>
Error error_of(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorKind::kInvalidArgument, "");
}

class FileTest : public testing::Test {
 protected:
  FileTest() {
    std::string pattern = (fs::temp_directory_path() / "ctxzip_file_test_XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~FileTest() override { fs::remove_all(directory_); }

  size_t n_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(directory_), {}));
  }

  fs::path directory_;
};

TEST_F(FileTest, WritesPiecesInOrder) {
  const fs::path path = directory_ / "a";
  write_file_atomically(path, [](const WriteFn& write) {
    write(as_bytes("one "));
    write({});
    write(as_bytes("two"));
  });
  EXPECT_EQ(read_text(path), "one two");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(FileTest, ReplacesAnExistingFile) {
  write_text(directory_ / "a", "old and longer");
  write_text(directory_ / "a", "new");
  EXPECT_EQ(read_text(directory_ / "a"), "new");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(FileTest, KeepsTheOldFileWhenTheProducerThrows) {
  const fs::path path = directory_ / "a";
  write_text(path, "old");
  EXPECT_THROW(write_file_atomically(path,
                                     [](const WriteFn& write) {
                                       write(as_bytes("half"));
                                       throw std::runtime_error("stop");
                                     }),
               std::runtime_error);
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(n_files(), 1u);
}

// Writes far more than the file system or limit lets through.
void expect_refused_write(const fs::path& path) {
  const std::string block(1 << 16, 'x');
  const Error error = error_of([&] {
    write_file_atomically(path, [&](const WriteFn& write) {
      for (int n = 0; n < 64; ++n) write(as_bytes(block));
    });
  });
  EXPECT_EQ(error.kind(), ErrorKind::kIo);
  EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
}

TEST_F(FileTest, KeepsTheOldFileAtTheFileSizeLimit) {
  const fs::path path = directory_ / "a";
  write_text(path, "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = 100'000, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  expect_refused_write(path);
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(n_files(), 1u);
}

TEST_F(FileTest, KeepsTheOldFileOnAFullFileSystem) {
  if (mount("tmpfs", directory_.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "no right to mount";
  }
  const fs::path path = directory_ / "a";
  write_text(path, "old");
  expect_refused_write(path);
  EXPECT_EQ(read_text(path), "old");
  EXPECT_EQ(n_files(), 1u);
  umount(directory_.c_str());
}

TEST_F(FileTest, GivesTheModeThatTheUmaskLeaves) {
  const mode_t before = umask(027);
  write_text(directory_ / "a", "x");
  umask(before);
  struct stat status {};
  ASSERT_EQ(stat((directory_ / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_F(FileTest, FollowsALink) {
  write_text(directory_ / "real", "old");
  fs::create_symlink("real", directory_ / "link");
  write_text(directory_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(directory_ / "link"));
  EXPECT_EQ(read_text(directory_ / "real"), "new");
}

TEST_F(FileTest, RefusesToReplaceADirectoryOrDevice) {
  fs::create_directory(directory_ / "d");
  EXPECT_EQ(error_of([&] { write_text(directory_ / "d", "x"); }).kind(), ErrorKind::kIo);
  EXPECT_EQ(error_of([&] { write_text("/dev/null", "x"); }).kind(), ErrorKind::kIo);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(FileTest, NamesTheReasonWhenTheDirectoryIsMissing) {
  const Error error = error_of([&] { write_text(directory_ / "no" / "a", "x"); });
  EXPECT_EQ(error.kind(), ErrorKind::kIo);
  EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos) << error.what();
}

TEST_F(FileTest, WritesABareNameIntoTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(directory_);
  write_text("bare", "x");
  fs::current_path(before);
  EXPECT_EQ(read_text(directory_ / "bare"), "x");
}

TEST_F(FileTest, MapsAFile) {
  write_text(directory_ / "a", "content");
  const MappedFile file(directory_ / "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()),
            "content");
}

TEST_F(FileTest, MappingSurvivesReplacement) {
  write_text(directory_ / "a", "content");
  const MappedFile file(directory_ / "a");
  write_text(directory_ / "a", "other");
  EXPECT_EQ(static_cast<char>(file.bytes()[0]), 'c');
}

TEST_F(FileTest, MapsAnEmptyFileToAnEmptySpan) {
  write_text(directory_ / "a", "");
  EXPECT_TRUE(MappedFile(directory_ / "a").bytes().empty());
}

TEST_F(FileTest, MappingNamesWhatIsNotAFile) {
  EXPECT_EQ(error_of([&] { MappedFile file(directory_ / "no"); }).kind(), ErrorKind::kNotFound);
  EXPECT_EQ(error_of([&] { MappedFile file(directory_); }).kind(), ErrorKind::kIo);
  const fs::path pipe = directory_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { MappedFile file(pipe); }).kind(), ErrorKind::kIo);
}

}  // namespace
}  // namespace ctxzip
