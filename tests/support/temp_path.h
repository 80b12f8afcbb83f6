// Places for files of a test.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

namespace ctxzip::test {

// In the folder for temporary files, with the process in its name: another build may run the same
// test at the same time.
inline std::string temp_path(const std::string& name) {
  return testing::TempDir() + std::to_string(getpid()) + "_" + name;
}

}  // namespace ctxzip::test
