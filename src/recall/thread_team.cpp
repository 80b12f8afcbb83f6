#include "recall/thread_team.h"

namespace ctxzip {

ThreadTeam::ThreadTeam(int n_threads) : barrier_(n_threads) {
  for (int thread = 1; thread < n_threads; ++thread) {
    threads_.emplace_back([this] {
      for (;;) {
        barrier_.arrive_and_wait();
        if (step_ == nullptr) return;
        run_phases();
      }
    });
  }
}

ThreadTeam::~ThreadTeam() {
  step_ = nullptr;
  barrier_.arrive_and_wait();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::attend(DecodeStep& step, const float* queries, float* out) {
  step.begin(queries, out);
  step_ = &step;
  barrier_.arrive_and_wait();
  run_phases();
}

void ThreadTeam::run_phases() {
  for (int phase = 0; phase < DecodeStep::kPhases; ++phase) {
    step_->run(phase);
    barrier_.arrive_and_wait();
  }
}

}  // namespace ctxzip
