// The tasks by group; task_table.cpp lists them.
#pragma once

#include <vector>

#include "eval/task.h"

namespace ctxzip::eval {

// Retrieval.
Task niah_task();
Task retr_kv_task();
Task retr_prefix_suffix_task();
Task repoqa_task();
// Understanding.
Task squad_task();
Task gsm8k_task();
Task en_qa_task();
Task en_multichoice_task();
// Redundancy.
Task en_sum_task();
Task retr_multihop_task();
Task math_find_task();
Task icl_manyshot_task();
// Mixed.
Task mix_sum_niah_task();
Task mix_repoqa_kv_task();
// RULER.
std::vector<Task> ruler_tasks();

}  // namespace ctxzip::eval
