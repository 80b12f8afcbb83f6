#include "eval/run_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/fail.h"

namespace ctxzip::eval {
namespace {

constexpr const char* kOtherFile = "give another --out file, or remove this one";

[[noreturn]] void fail_io(const std::string& path, const char* what) {
  fail(ErrorKind::kIo, "{}: cannot be {}: {}", path, what, std::strerror(errno));
}

// Takes the next whole line, without its end, off `rest`.
std::optional<std::string> next_line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  std::string line(rest.substr(0, end));
  rest.remove_prefix(end + 1);
  return line;
}

}  // namespace

std::string header_difference(const Json& in_file, const Json& now) {
  const Json old_fields = in_file.flatten();
  const Json new_fields = now.flatten();
  const auto describe = [&](const std::string& pointer) {
    // Members of an array are compared one by one, but only the whole array says much.
    const Json::json_pointer place(pointer);
    const bool in_array =
        now.contains(place.parent_pointer()) && now.at(place.parent_pointer()).is_array();
    const auto shown_place = in_array ? place.parent_pointer() : place;
    const auto text = [&](const Json& json) {
      return json.contains(shown_place) ? to_line(json.at(shown_place)) : std::string("missing");
    };
    std::string name = shown_place.to_string().substr(1);
    for (char& c : name) c = c == '/' ? '.' : c;
    return fmt::format("{} is {} in the file, {} now", name, text(in_file), text(now));
  };
  for (const auto& [pointer, value] : new_fields.items()) {
    if (!old_fields.contains(pointer) || old_fields.at(pointer) != value) return describe(pointer);
  }
  for (const auto& [pointer, value] : old_fields.items()) {
    if (!new_fields.contains(pointer)) return describe(pointer);
  }
  return {};
}

RunLog::RunLog(const std::string& path, const Json& header, const RunPlan& plan,
               const std::vector<std::string>& metrics)
    : path_(path), metrics_(metrics) {
  open_locked();
  try {
    const std::string content = read_all();
    const size_t n_good = resume(content, header, plan);
    if (n_good < content.size() && ftruncate(file_, static_cast<off_t>(n_good)) != 0) {
      fail_io(path_, "shortened");
    }
    started_ = n_good == 0;
    if (started_) write(to_line(header) + "\n");
  } catch (...) {
    close(file_);
    throw;
  }
}

RunLog::~RunLog() {
  if (started_ && n_contexts_done_ == 0) unlink(path_.c_str());
  close(file_);
}

void RunLog::open_locked() {
  file_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file_ < 0) fail_io(path_, "opened for writing");
  struct stat info {};
  const bool regular = fstat(file_, &info) == 0 && S_ISREG(info.st_mode);
  if (regular && flock(file_, LOCK_EX | LOCK_NB) == 0) return;
  const bool locked = regular && errno == EWOULDBLOCK;
  close(file_);
  if (!regular) fail(ErrorKind::kIo, "{}: is not a regular file", path_);
  if (locked) fail(ErrorKind::kIo, "{}: another run is writing to it", path_);
  fail_io(path_, "locked");
}

std::string RunLog::read_all() const {
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = pread(file_, buffer, sizeof buffer, static_cast<off_t>(content.size()));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path_, "read");
    if (n == 0) return content;
    content.append(buffer, static_cast<size_t>(n));
  }
}

size_t RunLog::resume(const std::string& content, const Json& header, const RunPlan& plan) {
  std::string_view rest = content;
  const auto first = next_line(rest);
  if (!first) {
    // Stopped while the header was written, or somebody's file?
    if (to_line(header).starts_with(content)) return 0;
    fail(ErrorKind::kCorruptFile, "{}: is not the log of an evaluation: {}", path_, kOtherFile);
  }
  check_header(*first, header);
  size_t n_good = content.size() - rest.size();
  size_t number = 1;
  for (const std::vector<RecordKey>& context : plan) {
    std::vector<AnswerRecord> records;
    for (const RecordKey& key : context) {
      const auto line = next_line(rest);
      if (!line) return n_good;
      records.push_back(read_record(*line, ++number, key));
    }
    records_.insert(records_.end(), records.begin(), records.end());
    ++n_contexts_done_;
    n_good = content.size() - rest.size();
  }
  if (!rest.empty()) {
    fail(ErrorKind::kCorruptFile, "{}: line {} comes after the last expected record: {}", path_,
         number + 1, kOtherFile);
  }
  return n_good;
}

void RunLog::check_header(const std::string& line, const Json& header) const {
  const Json found = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!found.is_object() || found.value("format", Json()) != header.at("format")) {
    fail(ErrorKind::kCorruptFile, "{}: is not the log of an evaluation: {}", path_, kOtherFile);
  }
  const std::string difference = header_difference(found, header);
  if (!difference.empty()) {
    fail(ErrorKind::kMismatch, "{}: is the log of another run ({}): use the same options, or {}",
         path_, difference, kOtherFile);
  }
}

AnswerRecord RunLog::read_record(const std::string& line, size_t number,
                                 const RecordKey& expected) const {
  AnswerRecord record;
  try {
    record = record_from_json(Json::parse(line), metrics_);
  } catch (const Json::exception&) {
    fail(ErrorKind::kCorruptFile,
         "{}: line {} is damaged: delete it and all lines after it to go on from there", path_,
         number);
  }
  if (record.key != expected) {
    fail(ErrorKind::kCorruptFile,
         "{}: line {} is not the record that this run writes there: delete it and all lines after "
         "it to go on from there",
         path_, number);
  }
  return record;
}

void RunLog::append_context(std::span<const AnswerRecord> records) {
  std::string lines;
  for (const AnswerRecord& record : records) {
    lines += to_line(to_json(record, metrics_)) + "\n";
    records_.push_back(record);
  }
  write(lines);
  ++n_contexts_done_;
}

void RunLog::write(const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_io(path_, "written");
    done += static_cast<size_t>(n);
  }
  if (fsync(file_) != 0) fail_io(path_, "written");
}

}  // namespace ctxzip::eval
