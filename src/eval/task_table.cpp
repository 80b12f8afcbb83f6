#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/fail.h"
#include "eval/task_list.h"

namespace ctxzip::eval {

std::span<const Task> tasks() {
  static const std::vector<Task> kTasks = [] {
    std::vector<Task> all{niah_task(),          retr_kv_task(),        retr_prefix_suffix_task(),
                          repoqa_task(),        squad_task(),          gsm8k_task(),
                          en_qa_task(),         en_multichoice_task(), en_sum_task(),
                          retr_multihop_task(), math_find_task(),      icl_manyshot_task(),
                          mix_sum_niah_task(),  mix_repoqa_kv_task()};
    for (Task& task : ruler_tasks()) all.push_back(std::move(task));
    return all;
  }();
  return kTasks;
}

const Task* find_task(std::string_view name) {
  const auto all = tasks();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Task& task) { return name == task.name; });
  return found == all.end() ? nullptr : &*found;
}

void refuse_generator_options(const DataRequest& request) {
  if (request.lengths.empty() && request.filler.empty()) return;
  fail(ErrorKind::kInvalidArgument,
       "{}: a data file brings its own contexts: no lengths and no filler are expected with it",
       request.path);
}

std::vector<EvalContext> in_turn(std::vector<EvalContext> contexts) {
  std::map<std::string, size_t> n_of_group;
  std::vector<std::pair<size_t, size_t>> order;  // place within the group, place in the file
  for (size_t at = 0; at < contexts.size(); ++at) {
    order.emplace_back(n_of_group[contexts[at].group]++, at);
  }
  std::sort(order.begin(), order.end());
  std::vector<EvalContext> all;
  all.reserve(order.size());
  for (const auto& [round, at] : order) all.push_back(std::move(contexts[at]));
  return all;
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string question_prompt(const Task& task, const EvalQuestion& question) {
  const std::string instruction = task.instruction;
  return instruction.empty() ? question.text : question.text + " " + instruction;
}

int64_t answer_tokens(const Task& task, const EvalQuestion& question) {
  return question.max_tokens > 0 ? question.max_tokens : task.max_tokens;
}

}  // namespace ctxzip::eval
