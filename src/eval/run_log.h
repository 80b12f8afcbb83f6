// The JSONL file of a run: a header line, then answer records, context by context. A run that was
// stopped goes on in the same file.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "eval/record.h"

namespace ctxzip::eval {

// Every record that a run will write, in order, one list for each context.
using RunPlan = std::vector<std::vector<RecordKey>>;

// Holds the file open and locked against a second writer. A file that it started and added no
// context to is removed: it would only stand in the way of a run with other options.
class RunLog {
 public:
  // Starts the file, or reads what an earlier run left: whole contexts are kept, a cut-off last
  // line and the records of an unfinished context are removed. Throws Error: kIo; kMismatch when
  // the file belongs to a run with other options (names the first that differs); kCorruptFile when
  // it is no such file or a line inside it is damaged. The file is left as it was then.
  RunLog(const std::string& path, const Json& header, const RunPlan& plan,
         const std::vector<std::string>& metrics);
  ~RunLog();
  RunLog(const RunLog&) = delete;
  RunLog& operator=(const RunLog&) = delete;

  // Whole contexts in the file, those of an earlier run included.
  size_t n_contexts_done() const { return n_contexts_done_; }
  const std::vector<AnswerRecord>& records() const { return records_; }

  // Appends all records of the next context and brings them to the disk. Throws Error{kIo}.
  void append_context(std::span<const AnswerRecord> records);

 private:
  void open_locked();
  std::string read_all() const;
  // Bytes that hold the header and whole contexts; fills the members. 0: nothing usable yet.
  size_t resume(const std::string& content, const Json& header, const RunPlan& plan);
  void check_header(const std::string& line, const Json& header) const;
  AnswerRecord read_record(const std::string& line, size_t number, const RecordKey& expected) const;
  void write(const std::string& text);

  std::string path_;
  std::vector<std::string> metrics_;
  int file_ = -1;
  bool started_ = false;
  size_t n_contexts_done_ = 0;
  std::vector<AnswerRecord> records_;
};

// The first value that differs between two headers, as "ratios is [0.3] in the file, [0.3,0.5]
// now"; empty when they are equal.
std::string header_difference(const Json& in_file, const Json& now);

}  // namespace ctxzip::eval
