// Limits of the machine at hand, measured in the process that compares against them.
#pragma once

namespace ctxzip::bench {

struct MachineLimits {
  double read_bytes_per_s_1 = 0;  // main memory, one thread
  double read_bytes_per_s_2 = 0;  // main memory, two threads together
  double fma_flops_per_s = 0;     // float32 multiply-adds (two operations each), one thread

  double read_bytes_per_s(int threads) const {
    return threads == 1 ? read_bytes_per_s_1 : read_bytes_per_s_2;
  }
};

// Best of many short tries each, about a second in all.
MachineLimits probe_machine();

}  // namespace ctxzip::bench
