// SCBench's data files, and the wording that generated contexts of its tasks share with them.
#pragma once

#include <functional>
#include <string>

#include "eval/json_place.h"
#include "eval/task.h"

namespace ctxzip::eval {

constexpr const char* kScbenchFormat =
    "SCBench JSONL: {\"context\", \"multi_turns\": [{\"input\", \"answer\"}]} on each line";

// What may differ from task to task.
struct ScbenchReader {
  const char* preamble = "";  // before every context
  // Makes a question of one turn, whose id is set already; by default its input and its answers.
  std::function<void(const JsonPlace& turn, EvalQuestion& question)> read_turn = {};
};

// Throws Error: kNotFound, kIo, kCorruptFile, kInvalidArgument (options of a generator).
TaskData read_scbench(const DataRequest& request, const ScbenchReader& reader);

// "input" and "answer" as they are.
void read_plain_turn(const JsonPlace& turn, EvalQuestion& question);

// A question with lettered options; answers become the right letter and its option.
std::string with_options(const std::string& question, const std::vector<std::string>& options);

}  // namespace ctxzip::eval
