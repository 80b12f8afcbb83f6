// What a model is asked, where the questions come from and how answers are scored. A new task is
// one file with its `_task` function, declared here and listed once in task_table.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ctxzip::eval {

struct EvalQuestion {
  std::string id;
  std::string text;
  std::vector<std::string> answers;  // each of them is right; never empty
};

struct EvalContext {
  std::string id;     // unique within a data file
  std::string group;  // contexts of one group resemble each other (an article's paragraphs)
  std::string text;
  std::vector<EvalQuestion> questions;  // never empty
};

struct TaskData {
  std::vector<EvalContext> contexts;  // in the file's order
  int64_t n_skipped = 0;              // questions left out because they have no answer
};

struct Metric {
  const char* name;
  double (*score)(std::string_view output, std::span<const std::string> answers);  // 0 to 1
};

struct Task {
  const char* name;
  const char* summary;
  const char* data_format;  // of `path`, for people
  // Follows every question after a space.
  const char* instruction;
  // Throws Error: kNotFound, kIo, kCorruptFile (names the file, the place and what was expected).
  TaskData (*load)(const std::string& path);
  // The first one decides: it is what "relative" means where only one figure is shown.
  std::span<const Metric> metrics;
};

// All tasks, in the order of --help.
std::span<const Task> tasks();

Task squad_task();

// The first n contexts (all, if there are fewer or n is 0), drawn one from each group in turn, so
// that few contexts still differ: first members of the groups, then second members, ...
std::vector<EvalContext> pick_contexts(std::vector<EvalContext> contexts, int64_t n);

// What the session is asked.
std::string question_prompt(const Task& task, const EvalQuestion& question);

}  // namespace ctxzip::eval
