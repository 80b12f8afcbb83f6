// Threads that run decode steps outside a ggml graph, whose own threads do it inside one.
#pragma once

#include <barrier>
#include <cstdint>
#include <thread>
#include <vector>

#include "recall/decode_step.h"

namespace ctxzip {

class ThreadTeam {
 public:
  // n_threads with the caller's; they wait without spinning between steps.
  explicit ThreadTeam(int n_threads);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // begin() and all phases. Allocates nothing.
  void attend(DecodeStep& step, const float* queries, float* out);

 private:
  void run_phases();

  std::barrier<> barrier_;
  DecodeStep* step_ = nullptr;  // null: threads end
  std::vector<std::thread> threads_;
};

}  // namespace ctxzip
