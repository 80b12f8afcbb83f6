#include "attention/seam.h"

#include <atomic>

namespace ctxzip {

AttentionSeam::AttentionSeam() {
  static std::atomic<uint64_t> next{1};
  serial_ = next.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ctxzip
