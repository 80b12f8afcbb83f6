#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "eval/task.h"

namespace ctxzip::eval {

std::span<const Task> tasks() {
  static const std::array kTasks{squad_task()};
  return kTasks;
}

std::vector<EvalContext> pick_contexts(std::vector<EvalContext> contexts, int64_t n) {
  std::map<std::string, size_t> n_of_group;
  std::vector<std::pair<size_t, size_t>> order;  // place within the group, place in the file
  for (size_t at = 0; at < contexts.size(); ++at) {
    order.emplace_back(n_of_group[contexts[at].group]++, at);
  }
  std::sort(order.begin(), order.end());
  if (n > 0 && static_cast<size_t>(n) < order.size()) order.resize(static_cast<size_t>(n));
  std::vector<EvalContext> picked;
  picked.reserve(order.size());
  for (const auto& [round, at] : order) picked.push_back(std::move(contexts[at]));
  return picked;
}

std::string question_prompt(const Task& task, const EvalQuestion& question) {
  return question.text + " " + task.instruction;
}

}  // namespace ctxzip::eval
