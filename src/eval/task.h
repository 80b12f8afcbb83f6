// What a model is asked, where the questions come from and how answers are scored. A new task is
// its `..._task` function, declared in task_list.h and listed once in task_table.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ctxzip::eval {

struct EvalQuestion {
  std::string id;  // unique within its context
  std::string text;
  // What is right; never empty. Most metrics accept any of them, some want all (metrics.h).
  std::vector<std::string> answers;
  // Wrong candidates that an answer must resemble less than the right one (code_pass).
  std::vector<std::string> others = {};
  std::string part = {};   // which part of a mixed task; empty elsewhere
  int64_t max_tokens = 0;  // longest answer; 0: the task's
};

struct EvalContext {
  std::string id;     // unique within a run
  std::string group;  // contexts of one group resemble each other (an article's paragraphs)
  std::string text;
  std::vector<EvalQuestion> questions;  // never empty
};

struct TaskData {
  std::vector<EvalContext> contexts;  // in the file's order
  int64_t n_skipped = 0;              // questions left out because they have no answer
};

// Tokens of a text under the model that will be asked.
using CountTokens = std::function<int64_t(std::string_view)>;

// Where contexts come from.
struct DataRequest {
  std::string path = {};              // a data file or a folder; empty: the task's generator
  std::string filler = {};            // text file that fills generated contexts; empty: built-in
  std::vector<int64_t> lengths = {};  // of generated contexts, in tokens; empty: the task's own
  int64_t n_contexts = 0;             // wanted in all; 0: the task's own number for each length
  uint64_t seed = 0;                  // of the generator
  CountTokens count_tokens = {};
};

// Data files bring their own contexts. Throws Error{kInvalidArgument} when the request has lengths
// or filler, which only generators use.
void refuse_generator_options(const DataRequest& request);

struct Metric {
  const char* name;
  double (*score)(std::string_view output, const EvalQuestion& question);  // 0 to 1
};

// What --data of a task is.
enum class DataNeed {
  kFile,             // required
  kFileOrFolder,     // required; contexts are made from a folder
  kFileOrGenerated,  // a generator makes contexts when none is given
  kGenerated,        // none is taken
};

struct Task {
  const char* name;
  const char* group;  // retrieval, understanding, redundancy, mixed, ruler
  const char* summary;
  DataNeed need = DataNeed::kFile;
  const char* data_format;  // of --data, for people; null for kGenerated
  // Follows every question after a space; empty where the questions say it all.
  const char* instruction;
  int64_t max_tokens;                     // longest answer, unless a question says
  std::span<const int64_t> lengths = {};  // default lengths of its generator; empty: it has none
  bool takes_filler = false;              // its generator does
  // Throws Error: kNotFound, kIo, kCorruptFile (names the file, the place and what was expected),
  // kInvalidArgument (a length in which the task has no room).
  std::function<TaskData(const DataRequest&)> load;
  // The first one decides: it is what "relative" means where only one figure is shown.
  std::span<const Metric> metrics;
};

// All tasks, in the order of --help.
std::span<const Task> tasks();
// Null when there is none.
const Task* find_task(std::string_view name);

// The order in which contexts are used: one of each group in turn, so that few contexts still
// differ: first members of the groups, then second members, ...
std::vector<EvalContext> in_turn(std::vector<EvalContext> contexts);

// Whether a text says nothing.
bool is_blank(std::string_view text);

// What the session is asked.
std::string question_prompt(const Task& task, const EvalQuestion& question);
// The longest answer to it.
int64_t answer_tokens(const Task& task, const EvalQuestion& question);

}  // namespace ctxzip::eval
